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

/**
 * Call the function of a command, for the callback of all commands of a table. A command without
 * parameters refuses them, because they would be ignored: the reply is {result, message} then.
 * @return what the function returns; 0 for a refusal, -ENOENT for a command that is not in the
 * table
 */
int telemetry_table_serve(const struct telemetry_command *commands, uint32_t n, const char *cmd,
	const char *params, struct rte_tel_data *d);

/**
 * Register all commands of a table.
 * @param serve  the callback, which calls telemetry_table_serve()
 * @return 0, or -errno of the first one that failed. Each failure is logged, and the others are
 * registered
 */
int telemetry_table_register(
	const struct telemetry_command *commands, uint32_t n, telemetry_cb serve);

/** Print as a reStructuredText definition list of at most 100 columns, which a README includes. */
void telemetry_table_print(const struct telemetry_command *commands, uint32_t n, FILE *out);

#endif /* TELEMETRY_TABLE_H */
