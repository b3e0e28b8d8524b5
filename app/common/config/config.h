/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Configuration files: INI, read by typed getters.
 *
 * A getter returns the value, or the default when the key is absent. What is wrong with a value is
 * logged at once and remembered, so that one run shows all mistakes: file and line, `--set` or
 * `telemetry`, section, key, value, what is allowed; config_check() then fails. A key that no
 * getter asked for is a mistake too, and so is one that a file has twice.
 *
 * Getters also note the value in force: config_dump() prints a complete file, and every default in
 * it is a value that one may write.
 *
 * Control lcore only.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_SETS_MAX 64

/** What a command line says of settings: `--config FILE`, and `--set` in their order. */
struct config_source {
	const char *file; /**< NULL: none */
	const char *set[CONFIG_SETS_MAX];
	unsigned int nb_sets;
};

struct config;

/** Note one `--set`. @return 0; -ENOSPC, logged */
int config_source_set(struct config_source *source, const char *assignment);

/**
 * Read the file, set what is to be set. Lines that are wrong are logged and left out: getters find
 * what else is wrong, and config_check() fails.
 * @return NULL with rte_errno set and the reason logged: the file cannot be read, --set is wrong
 */
struct config *config_open(const struct config_source *source);
void config_close(struct config *c);

/**
 * The same as it was given, and where; nothing has been asked for, and the file is not read again.
 * @return NULL with rte_errno ENOMEM
 */
struct config *config_copy(const struct config *from);

/**
 * Override one value, `section.key=value`.
 * @param origin  who says so, for messages: `--set`, `telemetry`; kept as a pointer
 * @return 0; -EINVAL, logged; -ENOMEM
 */
int config_set(struct config *c, const char *origin, const char *assignment);

/** Does the file have this section? */
bool config_has_section(const struct config *c, const char *section);

uint64_t config_uint(struct config *c, const char *section, const char *key, uint64_t def,
	uint64_t min, uint64_t max);
double config_real(
	struct config *c, const char *section, const char *key, double def, double min, double max);
bool config_bool(struct config *c, const char *section, const char *key, bool def);

/** One of `names` (NULL-terminated). @return its index */
unsigned int config_choice(struct config *c, const char *section, const char *key, unsigned int def,
	const char *const names[]);

/**
 * A number, or a word in place of one: `none`, `auto`, `any`.
 * @return false if the key is absent or `word`, or not a number; `*value` is left alone then
 */
bool config_uint_or(struct config *c, const char *section, const char *key, const char *word,
	uint64_t *value, uint64_t min, uint64_t max);

/**
 * A number, or a word that stands for 0: `auto`, `none`, `unlimited`.
 * @param def  0: the word is the default
 * @param min  at least 1
 * @return the number; 0 for the word
 */
uint64_t config_uint_word(struct config *c, const char *section, const char *key, const char *word,
	uint64_t def, uint64_t min, uint64_t max);

/** The same for a real number of more than 0, at most `max`; the word is the default. */
double config_real_word(
	struct config *c, const char *section, const char *key, const char *word, double max);

/**
 * A text, valid until config_close(). One that is empty counts as absent; so does `none` if there
 * may be no text.
 * @param def  what an absent one is; NULL: there may be none
 */
const char *config_text(struct config *c, const char *section, const char *key, const char *def);

/**
 * A list of numbers and ranges, `1,4-7`.
 * @param word  what one writes in place of a list: `auto`, `none`
 * @return how many there are, 0 if the key is absent or `word`
 */
unsigned int config_list(struct config *c, const char *section, const char *key, const char *word,
	uint32_t *out, unsigned int size, uint32_t max);

/** Report a mistake that only the caller can see. */
void config_complain(struct config *c, const char *section, const char *key, const char *what)
	__attribute__((nonnull(1, 2, 3, 4)));

/** The last mistake, as it was logged; "" if there was none. */
const char *config_mistake(const struct config *c);

/** @return 0; -EINVAL if anything was wrong or a key is unknown (all of it is logged) */
int config_check(struct config *c);

/** Print every value in force as a configuration file. */
void config_dump(const struct config *c, FILE *out);

#endif /* CONFIG_H */
