/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The commands of a program on the telemetry socket, with the text that documents them. */
#ifndef TELEMETRY_TABLE_H
#define TELEMETRY_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include <rte_telemetry.h>

/** A command with its documentation. */
struct telemetry_command {
	const char *path;
	const char *parameters; /**< "": none */
	const char *help;
	const char *reply; /**< keys of the reply */
	telemetry_cb callback;
};

/** Print as a reStructuredText definition list of at most 100 columns, which a README includes. */
void telemetry_table_print(const struct telemetry_command *commands, uint32_t n, FILE *out);

#endif /* TELEMETRY_TABLE_H */
