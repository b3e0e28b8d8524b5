/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Configuration in INI files, read by typed getters.
 *
 * A getter returns the value of a key, or the default if the key is absent. An invalid value is
 * logged at once, and config_check() fails later, so that one run reports all mistakes. A message
 * has the file and line (or `--set` or `telemetry`), section, key, value and the allowed values. A
 * key that no getter has read is also a mistake, and so is a key that a file sets twice.
 *
 * Getters also record the effective value. config_dump() prints all of these as a complete
 * configuration file. Every default is a value that may be written in a file.
 *
 * Control lcore only.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_SETS_MAX 64

/** Settings of a command line: `--config FILE`, and `--set` in their order. */
struct config_source {
	const char *file; /**< NULL: none */
	const char *set[CONFIG_SETS_MAX];
	unsigned int nb_sets;
};

struct config;

/** Add one `--set`. @return 0; -ENOSPC: too many, logged */
int config_source_set(struct config_source *source, const char *assignment);

/**
 * Read the file, and apply each `--set`. Invalid lines of the file are logged and skipped, and
 * config_check() fails later, so that the getters can report further mistakes.
 * @return NULL with rte_errno set: the file cannot be read, or a `--set` is invalid; logged
 */
struct config *config_open(const struct config_source *source);
void config_close(struct config *c);

/**
 * Copy a configuration: all settings and their origins, but not which keys were read. The file is
 * not read again.
 * @return NULL with rte_errno ENOMEM
 */
struct config *config_copy(const struct config *from);

/**
 * Override one value, `section.key=value`.
 * @param origin  source of the value, for messages: `--set`, `telemetry`; the pointer is kept
 * @return 0; -EINVAL, logged; -ENOMEM
 */
int config_set(struct config *c, const char *origin, const char *assignment);

/** Whether the configuration has this section. */
bool config_has_section(const struct config *c, const char *section);

/**
 * Numbers are decimal, or hexadecimal behind `0x`. Leading zeros have no meaning.
 * @return the value of a key from min to max; `def` if it is absent or invalid. @{
 */
uint64_t config_uint(struct config *c, const char *section, const char *key, uint64_t def,
	uint64_t min, uint64_t max);
double config_real(
	struct config *c, const char *section, const char *key, double def, double min, double max);
/** @param unit  in the message about an invalid value */
double config_real_unit(struct config *c, const char *section, const char *key, const char *unit,
	double def, double min, double max);
bool config_bool(struct config *c, const char *section, const char *key, bool def);
/** @} */

/** Get one of `names` (NULL-terminated). @return its index */
unsigned int config_choice(struct config *c, const char *section, const char *key, unsigned int def,
	const char *const names[]);

/**
 * Get a number, or a word in its place, such as `none`, `auto` or `any`.
 * @return false: the key is absent, is `word`, or is invalid; `*value` is unchanged
 */
bool config_uint_or(struct config *c, const char *section, const char *key, const char *word,
	uint64_t *value, uint64_t min, uint64_t max);

/**
 * Get a number, or a word that stands for 0: `auto`, `none`, `unlimited`.
 * @param def  returned if the key is absent; 0: the word is the default
 * @param min  at least 1
 * @return the number; 0 for the word
 */
uint64_t config_uint_word(struct config *c, const char *section, const char *key, const char *word,
	uint64_t def, uint64_t min, uint64_t max);

/** As config_uint_word(), for a real number above 0 and at most `max`; the word is the default. */
double config_real_word(
	struct config *c, const char *section, const char *key, const char *word, double max);

/** As config_uint_or(), for a real number. */
bool config_real_or(struct config *c, const char *section, const char *key, const char *word,
	double *value, double min, double max);

/**
 * Get a text, which is valid until config_close(). An empty text is a mistake.
 * @param def  returned if the text is absent or empty. NULL: the text is optional, and `none`
 *             counts as absent
 */
const char *config_text(struct config *c, const char *section, const char *key, const char *def);

/**
 * Get a list of numbers and ranges, such as `1,4-7`.
 * @param word  word that may stand in place of a list, such as `auto` or `none`
 * @return how many numbers; 0: the key is absent, is `word`, or is invalid
 */
unsigned int config_list(struct config *c, const char *section, const char *key, const char *word,
	uint32_t *out, unsigned int size, uint32_t max);

/** Report a mistake that only the caller can detect. */
void config_complain(struct config *c, const char *section, const char *key, const char *what)
	__attribute__((nonnull(1, 2, 3, 4)));

/** @return number of mistakes so far */
unsigned int config_nb_mistakes(const struct config *c);

/** @return the last mistake, as logged; "": none */
const char *config_mistake(const struct config *c);

/** @return 0; -EINVAL: there are mistakes or unknown keys, all logged */
int config_check(struct config *c);

/** Print all effective values as a configuration file. */
void config_dump(const struct config *c, FILE *out);

#endif /* CONFIG_H */
