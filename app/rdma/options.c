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
#define LONG_FIRST  1000 /* getopt's value of row 0 if it has no letter */
#define HELP_LETTER 'h'

static bool
has_argument(const struct option_row *row)
{
	return row->kind != OPTION_FLAG && row->kind != OPTION_IGNORED_FLAG;
}

static void
print_help(const char *mode, const char *usage, const struct option_row *rows, unsigned int nb_rows)
{
	char label[64], letter[8];
	unsigned int i;

	printf("Usage: braggline-rdma [EAL options] -- %s %s\n\n", mode, usage);
	for (i = 0; i < nb_rows; i++) {
		const struct option_row *row = &rows[i];

		if (!row->help)
			continue;
		snprintf(letter, sizeof(letter), row->letter ? "-%c" : "  ", row->letter);
		snprintf(label, sizeof(label), "%s%s%s%s%s%s", letter,
			row->letter && row->name ? ", " : (row->name ? "  " : ""),
			row->name ? "--" : "", row->name ? row->name : "", row->argument ? " " : "",
			row->argument ? row->argument : "");
		printf("  %-28s %s\n", label, row->help);
	}
	printf("  %-28s %s\n", "-h, --help", "print this");
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
		"braggline-rdma %s: %s: found '%s', wanted a number of %" PRIu64 " to %" PRIu64
		"\n",
		mode, name, text, row->min, row->max);
	return -EINVAL;
}

static int
set_value(const char *mode, const struct option_row *row, const char *text, void *values)
{
	void *at = RTE_PTR_ADD(values, row->offset);
	unsigned long long whole;
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

/* getopt's two tables, made of the rows. */
static void
make_tables(
	const struct option_row *rows, unsigned int nb_rows, char *letters, struct option *names)
{
	unsigned int i, n = 0;

	*letters++ = HELP_LETTER;
	for (i = 0; i < nb_rows; i++) {
		if (rows[i].letter) {
			*letters++ = rows[i].letter;
			if (has_argument(&rows[i]))
				*letters++ = ':';
		}
		if (rows[i].name)
			names[n++] = (struct option){rows[i].name,
				has_argument(&rows[i]) ? required_argument : no_argument, NULL,
				LONG_FIRST + (int)i};
	}
	*letters = '\0';
	names[n++] = (struct option){"help", no_argument, NULL, HELP_LETTER};
	names[n] = (struct option){NULL, 0, NULL, 0};
}

static const struct option_row *
find_row(const struct option_row *rows, unsigned int nb_rows, int choice)
{
	unsigned int i;

	if (choice >= LONG_FIRST)
		return &rows[choice - LONG_FIRST];
	for (i = 0; i < nb_rows; i++)
		if (rows[i].letter == choice)
			return &rows[i];
	return NULL;
}

enum options_result
options_parse(int argc, char **argv, const struct option_row *rows, unsigned int nb_rows,
	void *values, const char *usage, const char **words, unsigned int max_words)
{
	struct option names[ROWS_MAX + 2];
	char letters[2 * ROWS_MAX + 2];
	unsigned int nb_words = 0;
	int choice;

	RTE_VERIFY(nb_rows <= ROWS_MAX);
	make_tables(rows, nb_rows, letters, names);
	optind = 0; /* GNU: begin anew, also after EAL's own parsing */
	while ((choice = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		const struct option_row *row;

		if (choice == HELP_LETTER) {
			print_help(argv[0], usage, rows, nb_rows);
			return OPTIONS_HELP;
		}
		row = choice == '?' ? NULL : find_row(rows, nb_rows, choice);
		if (!row) {
			fprintf(stderr, "braggline-rdma %s: --help lists the options\n", argv[0]);
			return OPTIONS_WRONG;
		}
		if (set_value(argv[0], row, optarg, values) < 0)
			return OPTIONS_WRONG;
	}
	for (; optind < argc; optind++) {
		if (nb_words == max_words) {
			fprintf(stderr,
				"braggline-rdma %s: found '%s', wanted at most %u words besides "
				"the options\n",
				argv[0], argv[optind], max_words);
			return OPTIONS_WRONG;
		}
		words[nb_words++] = argv[optind];
	}
	return OPTIONS_OK;
}
