/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_debug.h>

#define ROWS_MAX    64
#define LONG_FIRST  1000 /* getopt's value of row 0 if the option has no letter */
#define HELP_LETTER 'h'

static bool
has_argument(const struct option_row *row)
{
	return row->kind != OPTION_FLAG && row->kind != OPTION_IGNORED_FLAG;
}

static void
print_row(const struct option_row *row)
{
	char label[64], letter[8];

	snprintf(letter, sizeof(letter), row->letter ? "-%c" : "  ", row->letter);
	snprintf(label, sizeof(label), "%s%s%s%s%s%s", letter,
		row->letter && row->name ? ", " : (row->name ? "  " : ""), row->name ? "--" : "",
		row->name ? row->name : "", row->argument ? " " : "",
		row->argument ? row->argument : "");
	printf("  %-28s %s\n", label, row->help);
}

static void
print_help(const char *mode, const char *usage, const struct option_group *groups,
	unsigned int nb_groups)
{
	unsigned int g, i;

	printf("Usage: braggline-rdma [EAL options] -- %s %s\n", mode, usage);
	for (g = 0; g < nb_groups; g++) {
		printf("\n");
		for (i = 0; i < groups[g].nb_rows; i++)
			if (groups[g].rows[i].help)
				print_row(&groups[g].rows[i]);
	}
	printf("  %-28s %s\n", "-h, --help", "print this help and exit");
}

static int
wrong(const char *mode, const struct option_row *row, const char *text)
{
	char name[64];

	if (row->name)
		snprintf(name, sizeof(name), "--%s", row->name);
	else
		snprintf(name, sizeof(name), "-%c", row->letter);
	fprintf(stderr,
		"braggline-rdma %s: %s: found '%s', expected a number from %" PRIu64 " to "
		"%" PRIu64 "\n",
		mode, name, text, row->min, row->max);
	return -EINVAL;
}

static int
set_value(const char *mode, const struct option_row *row, const char *text, void *values)
{
	void *at = RTE_PTR_ADD(values, row->offset);
	unsigned long long whole;
	double real;
	char *end;

	switch (row->kind) {
	case OPTION_IGNORED:
	case OPTION_IGNORED_FLAG:
		return 0;
	case OPTION_FLAG:
		*(bool *)at = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)at = text;
		return 0;
	case OPTION_REAL:
		real = strtod(text, &end);
		/* this form of the comparison also rejects NaN */
		if (end == text || *end || !(real >= (double)row->min && real <= (double)row->max))
			return wrong(mode, row, text);
		*(double *)at = real;
		return 0;
	default:
		break;
	}
	errno = 0;
	whole = strtoull(text, &end, 0);
	if (errno || end == text || *end || strchr(text, '-') || whole < row->min ||
		whole > row->max)
		return wrong(mode, row, text);
	if (row->kind == OPTION_U8)
		*(uint8_t *)at = (uint8_t)whole;
	else if (row->kind == OPTION_U16)
		*(uint16_t *)at = (uint16_t)whole;
	else if (row->kind == OPTION_U32)
		*(uint32_t *)at = (uint32_t)whole;
	else
		*(uint64_t *)at = whole;
	return 0;
}

/* Make getopt's two tables from the rows. */
static void
make_tables(const struct option_row *const *rows, unsigned int nb_rows, char *letters,
	struct option *names)
{
	unsigned int i, n = 0;

	*letters++ = HELP_LETTER;
	for (i = 0; i < nb_rows; i++) {
		if (rows[i]->letter) {
			*letters++ = rows[i]->letter;
			if (has_argument(rows[i]))
				*letters++ = ':';
		}
		if (rows[i]->name)
			names[n++] = (struct option){rows[i]->name,
				has_argument(rows[i]) ? required_argument : no_argument, NULL,
				LONG_FIRST + (int)i};
	}
	*letters = '\0';
	names[n++] = (struct option){"help", no_argument, NULL, HELP_LETTER};
	names[n] = (struct option){NULL, 0, NULL, 0};
}

/* @return index of the row, nb_rows: none */
static unsigned int
find_row(const struct option_row *const *rows, unsigned int nb_rows, int choice)
{
	unsigned int i;

	if (choice >= LONG_FIRST)
		return (unsigned int)(choice - LONG_FIRST);
	for (i = 0; i < nb_rows; i++)
		if (rows[i]->letter == choice && choice != '?')
			break;
	return i;
}

static enum options_result
take_words(int argc, char **argv, const char **words, unsigned int max_words)
{
	unsigned int n = 0;

	for (; optind < argc; optind++) {
		if (n == max_words) {
			fprintf(stderr,
				"braggline-rdma %s: found '%s', expected at most %u arguments "
				"besides the options\n",
				argv[0], argv[optind], max_words);
			return OPTIONS_WRONG;
		}
		words[n++] = argv[optind];
	}
	return OPTIONS_OK;
}

enum options_result
options_parse(int argc, char **argv, const struct option_group *groups, unsigned int nb_groups,
	const char *usage, const char **words, unsigned int max_words)
{
	const struct option_row *rows[ROWS_MAX];
	struct option names[ROWS_MAX + 2];
	char letters[2 * ROWS_MAX + 2];
	unsigned int nb_rows = 0, g, i;
	void *values[ROWS_MAX];
	int choice;

	for (g = 0; g < nb_groups; g++)
		for (i = 0; i < groups[g].nb_rows; i++) {
			RTE_VERIFY(nb_rows < ROWS_MAX);
			values[nb_rows] = groups[g].values;
			rows[nb_rows++] = &groups[g].rows[i];
		}
	make_tables(rows, nb_rows, letters, names);
	optind = 0; /* GNU extension: start the scan again, after EAL's parsing */
	while ((choice = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		if (choice == HELP_LETTER) {
			print_help(argv[0], usage, groups, nb_groups);
			return OPTIONS_HELP;
		}
		i = find_row(rows, nb_rows, choice);
		if (i == nb_rows) {
			fprintf(stderr, "braggline-rdma %s: --help lists the options\n", argv[0]);
			return OPTIONS_WRONG;
		}
		if (set_value(argv[0], rows[i], optarg, values[i]) < 0)
			return OPTIONS_WRONG;
	}
	return take_words(argc, argv, words, max_words);
}
