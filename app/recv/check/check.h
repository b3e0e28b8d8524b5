/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `--check`: checks of the host and the settings before the first run.
 *
 * A row is the result of one item: the value found, a verdict, and a one-line fix. An item is a
 * function that evaluates facts and adds rows. The facts come from files below a replaceable root
 * of /proc and /sys, or from a structure that another function has filled from EAL. Unit tests can
 * therefore cover every verdict.
 *
 * An item adds one row, unless its comment says otherwise. Its verdict is n.a. if the kernel does
 * not provide the information. If all ports are replays, which wait for the receiver, it is also
 * n.a. for items that only matter for live packets.
 *
 * Verdicts: fail = a run would not work or would lose data immediately; warn = a run works, but may
 * lose data under load; n.a. = the item does not apply here, and the value gives the reason.
 *
 * Only the main lcore may call these functions.
 */
#ifndef CHECK_H
#define CHECK_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct placement;
struct settings;

#define CHECK_ROWS_MAX 320 /**< for 16 ports and all other items */

enum check_verdict {
	CHECK_OK,
	CHECK_WARN,
	CHECK_FAIL,
	CHECK_NA,
	CHECK_VERDICTS
};

extern const char *const check_verdict_names[CHECK_VERDICTS];

struct check_row {
	enum check_verdict verdict;
	char item[24];
	char value[320];
	char fix[320];
};

struct check {
	const char *root; /**< prefix of /proc and /sys; "" on a real host */
	uint32_t nb_rows;
	struct check_row rows[CHECK_ROWS_MAX];
};

/** Add a row. `item` may be "port 0: link"; the other arguments are its value, printf-style. */
void check_add(struct check *c, enum check_verdict verdict, const char *item, const char *value,
	...) __attribute__((format(printf, 4, 5)));

/** Set the fix of the last row. */
void check_fix(struct check *c, const char *fix, ...) __attribute__((format(printf, 2, 3)));

/**
 * Read a small file below the root. The final newline is removed.
 * @param path  printf-style; starts with /proc or /sys
 * @return length of the text, or -errno
 */
int check_read(const struct check *c, char *text, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));

/** Read a number from a file below the root. @return the number, or -1 */
int64_t check_read_number(const struct check *c, const char *path, ...)
	__attribute__((format(printf, 2, 3)));

/** Parse a CPU list in the kernel's format, `0-3,8`. @return number of CPUs */
int check_parse_cpus(const char *list, cpu_set_t *cpus);

/** Format a CPU list in the kernel's format; `none` if empty. @return text */
const char *check_print_cpus(const cpu_set_t *cpus, char *text, size_t size);

/** Format a size, e.g. `2.3 GiB`. @return text */
const char *check_print_bytes(uint64_t bytes, char text[16]);

/** Print all rows and the totals. @return number of rows that fail */
uint32_t check_print(const struct check *c, FILE *out);

/**
 * Run all items that apply to these settings, and print the table. Temporarily sets up the ports
 * with small pools, because their drivers report some properties only then.
 * @param way  result of placement_choose() for the settings, including its errors
 * @return number of rows that fail
 */
uint32_t check_run(const struct settings *s, const struct placement *way, FILE *out);

#endif /* CHECK_H */
