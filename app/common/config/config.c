/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "config/config.h"
#include "config/ini_file.h"
#include "log.h"
#include "whole_number.h"

LOG_REGISTER("config", "config");

/** Value for the absence of an optional text. */
#define NONE "none"

/** A setting from the file, --set or telemetry. A section header is a setting with key "". */
struct given {
	struct given *next; /**< in file order; getters return pointers into these elements */
	const char *origin;
	unsigned int line; /**< line of the file; 0: not from the file */
	char section[INI_NAME_LEN];
	char key[INI_NAME_LEN];
	char text[INI_VALUE_LEN];
};

/** Effective value of a key that a getter has read. */
struct value {
	char section[INI_NAME_LEN];
	char key[INI_NAME_LEN];
	char text[INI_VALUE_LEN];
};

struct config {
	const char *file; /**< NULL: none */
	struct given *given, **end;
	struct value *values; /**< in the order of first use */
	unsigned int nb_values;
	unsigned int mistakes;
	char mistake[INI_VALUE_LEN + 1024]; /**< text of the last mistake */
};

/** @param key  "": find the header of the section */
static struct given *
find_given(const struct config *c, const char *section, const char *key)
{
	for (struct given *g = c->given; g != NULL; g = g->next)
		if (strcmp(g->section, section) == 0 && strcmp(g->key, key) == 0)
			return g;
	return NULL;
}

/** Add or replace a setting. The caller has checked the lengths of the texts. */
static int
give(struct config *c, const char *origin, unsigned int line, const char *section, const char *key,
	const char *text)
{
	struct given *g = find_given(c, section, key);

	if (g == NULL) {
		g = calloc(1, sizeof(*g));
		if (g == NULL)
			return -ENOMEM;
		*c->end = g;
		c->end = &g->next;
		strcpy(g->section, section);
		strcpy(g->key, key);
	}
	g->origin = origin;
	g->line = line;
	strcpy(g->text, text);
	return 0;
}

/** Handle a line of the file. */
static int
take_line(void *arg, unsigned int line, const char *section, const char *key, const char *text)
{
	struct config *c = arg;
	const struct given *before = find_given(c, section, key);

	if (before == NULL || key[0] == '\0')
		return give(c, c->file, line, section, key, text);
	snprintf(c->mistake, sizeof(c->mistake), "%s:%u: [%s] %s = %s: already set in line %u",
		c->file, line, section, key, text, before->line);
	LOG(ERR, "%s\n", c->mistake);
	c->mistakes++;
	return 0;
}

void
config_close(struct config *c)
{
	struct given *next;

	if (c == NULL)
		return;
	for (struct given *g = c->given; g != NULL; g = next) {
		next = g->next;
		free(g);
	}
	free(c->values);
	free(c);
}

static int
refuse_assignment(struct config *c, const char *origin, const char *assignment, const char *why)
{
	const bool is_text = ini_is_text(assignment);

	/* the message goes to a log or a telemetry reply: do not repeat bytes that are not text */
	snprintf(c->mistake, sizeof(c->mistake), "%s: '%.200s%s': %s", origin,
		is_text ? assignment : "...", strlen(assignment) > 200 && is_text ? "..." : "",
		why);
	LOG(ERR, "%s\n", c->mistake);
	return -EINVAL;
}

/** Length of a text without the blanks at its end. */
static int
length_of(const char *text, const char *end)
{
	while (end > text && isblank((unsigned char)end[-1]))
		end--;
	return end - text;
}

/** Copy a text without the blanks around it, which files may have, too. */
static void
copy_stripped(char *to, size_t size, const char *text, const char *end)
{
	while (text < end && isblank((unsigned char)*text))
		text++;
	snprintf(to, size, "%.*s", length_of(text, end), text);
}

int
config_set(struct config *c, const char *origin, const char *assignment)
{
	const char *equals = strchr(assignment, '=');
	char section[INI_NAME_LEN], key[INI_NAME_LEN], value[INI_VALUE_LEN];
	const char *dot = NULL;

	/* a section name may contain dots, so the last dot before `=` is the separator */
	for (const char *p = assignment; equals != NULL && p < equals; p++)
		if (*p == '.')
			dot = p;
	if (dot == NULL || dot == assignment || dot + 1 == equals)
		return refuse_assignment(c, origin, assignment, "expected section.key=value");
	if (dot - assignment >= INI_NAME_LEN || equals - dot > INI_NAME_LEN)
		return refuse_assignment(c, origin, assignment,
			"a section's or key's name has at most " INI_NAME_MAX " bytes");
	if (strlen(equals + 1) >= INI_VALUE_LEN)
		return refuse_assignment(
			c, origin, assignment, "a value has at most " INI_VALUE_MAX " bytes");
	if (!ini_is_text(assignment) || strpbrk(assignment, "\r\n") != NULL)
		return refuse_assignment(
			c, origin, assignment, "is not a single line of UTF-8 text");
	copy_stripped(section, sizeof(section), assignment, dot);
	copy_stripped(key, sizeof(key), dot + 1, equals);
	copy_stripped(value, sizeof(value), equals + 1, strchr(equals, '\0'));
	return give(c, origin, 0, section, key, value);
}

int
config_source_set(struct config_source *source, const char *assignment)
{
	if (source->nb_sets == CONFIG_SETS_MAX) {
		LOG(ERR, "--set: at most %u times\n", CONFIG_SETS_MAX);
		return -ENOSPC;
	}
	source->set[source->nb_sets++] = assignment;
	return 0;
}

/** Log each line with the prefix, so that a search for the prefix finds it. */
static void
log_lines(const char *text)
{
	for (const char *end; *text != '\0'; text = *end == '\0' ? end : end + 1) {
		end = strchrnul(text, '\n');
		LOG(ERR, "%.*s\n", (int)(end - text), text);
	}
}

struct config *
config_open(const struct config_source *source)
{
	struct config *c = calloc(1, sizeof(*c));
	unsigned int i;
	int ret = 0;

	if (c == NULL) {
		rte_errno = ENOMEM;
		return NULL;
	}
	c->file = source->file;
	c->end = &c->given;
	if (c->file != NULL) {
		ret = ini_file_read(c->file, take_line, c, c->mistake, sizeof(c->mistake));
		if (ret != 0)
			log_lines(c->mistake);
		/* invalid lines: continue, so that all other mistakes are reported too */
		if (ret == -EINVAL) {
			c->mistakes++;
			ret = 0;
		}
	}
	for (i = 0; ret == 0 && i < source->nb_sets; i++)
		ret = config_set(c, "--set", source->set[i]);
	if (ret != 0) {
		config_close(c);
		rte_errno = -ret;
		return NULL;
	}
	return c;
}

struct config *
config_copy(const struct config *from)
{
	struct config *c = calloc(1, sizeof(*c));
	int ret = 0;

	if (c == NULL)
		goto no_memory;
	c->file = from->file;
	c->end = &c->given;
	for (const struct given *g = from->given; ret == 0 && g != NULL; g = g->next)
		ret = give(c, g->origin, g->line, g->section, g->key, g->text);
	if (ret == 0)
		return c;
no_memory:
	config_close(c);
	rte_errno = ENOMEM;
	return NULL;
}

bool
config_has_section(const struct config *c, const char *section)
{
	for (const struct given *g = c->given; g != NULL; g = g->next)
		if (strcmp(g->section, section) == 0)
			return true;
	return false;
}

static struct value *
find_value(const struct config *c, const char *section, const char *key)
{
	for (unsigned int i = 0; i < c->nb_values; i++)
		if (strcmp(c->values[i].section, section) == 0 &&
			strcmp(c->values[i].key, key) == 0)
			return &c->values[i];
	return NULL;
}

/** Get the text of a setting, and record it, or `def`, as effective value. @return NULL: not set */
static const char *
look_up(struct config *c, const char *section, const char *key, const char *def)
{
	const struct given *g = find_given(c, section, key);
	const char *text = g != NULL ? g->text : NULL;
	struct value *v = find_value(c, section, key);

	if (v == NULL) {
		struct value *more = realloc(c->values, (c->nb_values + 1) * sizeof(*c->values));

		if (more == NULL) {
			c->mistakes++;
			return text;
		}
		c->values = more;
		v = &c->values[c->nb_values++];
		snprintf(v->section, sizeof(v->section), "%s", section);
		snprintf(v->key, sizeof(v->key), "%s", key);
	}
	snprintf(v->text, sizeof(v->text), "%s", text != NULL ? text : def);
	return text;
}

void
config_complain(struct config *c, const char *section, const char *key, const char *what)
{
	const struct given *g = find_given(c, section, key);
	const char *origin = g != NULL ? g->origin : c->file;
	const struct value *def = find_value(c, section, key);
	const char *text = g != NULL ? g->text : def != NULL ? def->text : "(unset)";
	char line[16] = "";

	if (g != NULL && g->line != 0)
		snprintf(line, sizeof(line), ":%u", g->line);
	snprintf(c->mistake, sizeof(c->mistake), "%s%s%s[%s] %s = %s%s: %s",
		origin != NULL ? origin : "", line, origin != NULL ? ": " : "", section, key,
		text[0] != '\0' ? text : "(empty)", g == NULL && def != NULL ? " (default)" : "",
		what);
	LOG(ERR, "%s\n", c->mistake);
	c->mistakes++;
}

static bool
parse_uint(const char *text, uint64_t *value, uint64_t min, uint64_t max)
{
	uint64_t number;
	const char *end = whole_number_or_hex(text, &number);

	if (end == NULL || *end != '\0' || number < min || number > max)
		return false;
	*value = number;
	return true;
}

uint64_t
config_uint(struct config *c, const char *section, const char *key, uint64_t def, uint64_t min,
	uint64_t max)
{
	char shown[24], what[96];
	uint64_t value = def;
	const char *text;

	snprintf(shown, sizeof(shown), "%" PRIu64, def);
	text = look_up(c, section, key, shown);
	if (text == NULL || parse_uint(text, &value, min, max))
		return value;
	snprintf(what, sizeof(what), "must be a whole number, %" PRIu64 " ... %" PRIu64, min, max);
	config_complain(c, section, key, what);
	return def;
}

/** Parse a number, or a word in place of one. @return false: the word, or a mistake */
static bool
parse_uint_or(struct config *c, const char *section, const char *key, const char *text,
	const char *word, uint64_t *value, uint64_t min, uint64_t max)
{
	char what[128];

	if (strcmp(text, word) == 0)
		return false;
	if (parse_uint(text, value, min, max))
		return true;
	snprintf(what, sizeof(what), "must be '%s' or a whole number, %" PRIu64 " ... %" PRIu64,
		word, min, max);
	config_complain(c, section, key, what);
	return false;
}

bool
config_uint_or(struct config *c, const char *section, const char *key, const char *word,
	uint64_t *value, uint64_t min, uint64_t max)
{
	const char *text = look_up(c, section, key, word);

	return text != NULL && parse_uint_or(c, section, key, text, word, value, min, max);
}

uint64_t
config_uint_word(struct config *c, const char *section, const char *key, const char *word,
	uint64_t def, uint64_t min, uint64_t max)
{
	char shown[24];
	const char *text;
	uint64_t value = 0;

	snprintf(shown, sizeof(shown), "%" PRIu64, def);
	text = look_up(c, section, key, def == 0 ? word : shown);
	if (text == NULL)
		return def;
	return parse_uint_or(c, section, key, text, word, &value, min, max) ? value : 0;
}

/* @return false: the whole text is not a number */
static bool
parse_real(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end != text && *end == '\0';
}

bool
config_real_or(struct config *c, const char *section, const char *key, const char *word,
	double *value, double min, double max)
{
	const char *text = look_up(c, section, key, word);
	char what[128];
	double number;

	if (text == NULL || strcmp(text, word) == 0)
		return false;
	if (parse_real(text, &number) && number >= min && number <= max) {
		*value = number;
		return true;
	}
	snprintf(what, sizeof(what), "must be '%s' or a number, %g ... %g", word, min, max);
	config_complain(c, section, key, what);
	return false;
}

double
config_real_word(
	struct config *c, const char *section, const char *key, const char *word, double max)
{
	const char *text = look_up(c, section, key, word);
	char what[128];
	double value;

	if (text == NULL || strcmp(text, word) == 0)
		return 0;
	if (parse_real(text, &value) && value > 0 && value <= max)
		return value;
	snprintf(
		what, sizeof(what), "must be '%s' or a number, more than 0, at most %g", word, max);
	config_complain(c, section, key, what);
	return 0;
}

double
config_real_unit(struct config *c, const char *section, const char *key, const char *unit,
	double def, double min, double max)
{
	char shown[32], what[96];
	const char *text;
	double value;

	snprintf(shown, sizeof(shown), "%.10g", def);
	text = look_up(c, section, key, shown);
	if (text == NULL)
		return def;
	if (parse_real(text, &value) && value >= min && value <= max)
		return value;
	snprintf(what, sizeof(what), "must be a number%s%s, %g ... %g",
		unit[0] != '\0' ? " in " : "", unit, min, max);
	config_complain(c, section, key, what);
	return def;
}

double
config_real(
	struct config *c, const char *section, const char *key, double def, double min, double max)
{
	return config_real_unit(c, section, key, "", def, min, max);
}

unsigned int
config_choice(struct config *c, const char *section, const char *key, unsigned int def,
	const char *const names[])
{
	const char *text = look_up(c, section, key, names[def]);
	char what[256] = "must be";
	const char *between;
	size_t used = strlen(what);

	if (text == NULL)
		return def;
	for (unsigned int i = 0; names[i] != NULL; i++) {
		if (strcmp(text, names[i]) == 0)
			return i;
		between = i == 0 ? "" : names[i + 1] == NULL ? " or" : ",";
		if (used < sizeof(what))
			used += snprintf(
				what + used, sizeof(what) - used, "%s %s", between, names[i]);
	}
	config_complain(c, section, key, what);
	return def;
}

bool
config_bool(struct config *c, const char *section, const char *key, bool def)
{
	static const char *const names[] = {"no", "yes", NULL};

	return config_choice(c, section, key, def, names) != 0;
}

const char *
config_text(struct config *c, const char *section, const char *key, const char *def)
{
	const char *text = look_up(c, section, key, def != NULL ? def : NONE);

	if (text == NULL || (def == NULL && strcmp(text, NONE) == 0))
		return def;
	if (text[0] == '\0') {
		config_complain(c, section, key, "give a value, or remove the key");
		return def;
	}
	return text;
}

unsigned int
config_list(struct config *c, const char *section, const char *key, const char *word, uint32_t *out,
	unsigned int size, uint32_t max)
{
	const char *text = look_up(c, section, key, word);
	unsigned int n = 0;
	char what[128];

	if (text == NULL || strcmp(text, word) == 0)
		return 0;
	if (text[0] == '\0')
		goto bad;
	for (const char *p = text; *p != '\0';) {
		uint64_t first, last;

		p = whole_number_or_hex(p + strspn(p, " "), &first);
		last = first;
		if (p != NULL && *p == '-')
			p = whole_number_or_hex(p + 1, &last);
		if (p == NULL)
			goto bad;
		if (last < first || last > max || last - first >= size - n)
			goto bad;
		for (uint64_t i = first; i <= last; i++)
			out[n++] = i;
		if (*p == ',' && p[1] != '\0')
			p++;
		else if (*p != '\0')
			goto bad;
	}
	return n;
bad:
	snprintf(what, sizeof(what),
		"must be '%s' or at most %u numbers and ranges like 1,4-7, none above %u", word,
		size, max);
	config_complain(c, section, key, what);
	return 0;
}

/** List the sections that getters have read. */
static void
list_sections(const struct config *c, char *what, size_t size)
{
	size_t used = snprintf(what, size, "is not a known section; the sections are");

	for (unsigned int i = 0; i < c->nb_values && used < size; i++) {
		bool first = true;

		for (unsigned int k = 0; k < i; k++)
			first &= strcmp(c->values[k].section, c->values[i].section) != 0;
		if (first)
			used += snprintf(what + used, size - used, " [%s]", c->values[i].section);
	}
}

/** Report a key or section that no getter has read. */
static void
complain_unknown(struct config *c, const struct given *g)
{
	char what[512];
	size_t used = 0;

	list_sections(c, what, sizeof(what));

	for (unsigned int i = 0; i < c->nb_values && used < sizeof(what); i++) {
		if (strcmp(c->values[i].section, g->section) != 0)
			continue;
		if (used == 0)
			used = snprintf(what, sizeof(what), "unknown key; this section has");
		used += snprintf(what + used, sizeof(what) - used, " %s", c->values[i].key);
	}
	config_complain(c, g->section, g->key, what);
}

int
config_check(struct config *c)
{
	for (const struct given *g = c->given; g != NULL; g = g->next)
		if (g->key[0] != '\0' && find_value(c, g->section, g->key) == NULL)
			complain_unknown(c, g);
	return c->mistakes == 0 ? 0 : -EINVAL;
}

void
config_dump(const struct config *c, FILE *out)
{
	for (unsigned int i = 0; i < c->nb_values; i++) {
		bool first = true;

		for (unsigned int k = 0; k < i; k++)
			first &= strcmp(c->values[k].section, c->values[i].section) != 0;
		if (!first)
			continue;
		fprintf(out, "%s[%s]\n", i == 0 ? "" : "\n", c->values[i].section);
		for (unsigned int k = i; k < c->nb_values; k++)
			if (strcmp(c->values[k].section, c->values[i].section) == 0)
				fprintf(out, "%s = %s\n", c->values[k].key, c->values[k].text);
	}
}

unsigned int
config_nb_mistakes(const struct config *c)
{
	return c->mistakes;
}

const char *
config_mistake(const struct config *c)
{
	return c->mistake;
}
