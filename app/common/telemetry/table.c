/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include <rte_common.h>

#include "telemetry/table.h"

static void
rule(FILE *out, const int width[4])
{
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < width[i]; k++)
			fputc('=', out);
		fputc(i < 3 ? ' ' : '\n', out);
	}
}

void
telemetry_table_print(const struct telemetry_command *commands, uint32_t n, FILE *out)
{
	const char *head[4] = {"command", "parameters", "what", "reply"};
	int width[4];

	for (int i = 0; i < 4; i++)
		width[i] = strlen(head[i]);
	for (uint32_t i = 0; i < n; i++) {
		width[0] = RTE_MAX(width[0], (int)strlen(commands[i].path) + 4);
		width[1] = RTE_MAX(width[1], (int)strlen(commands[i].parameters) + 4);
		width[2] = RTE_MAX(width[2], (int)strlen(commands[i].help));
		width[3] = RTE_MAX(width[3], (int)strlen(commands[i].reply));
	}
	rule(out, width);
	fprintf(out, "%-*s %-*s %-*s %s\n", width[0], head[0], width[1], head[1], width[2], head[2],
		head[3]);
	rule(out, width);
	for (uint32_t i = 0; i < n; i++) {
		const struct telemetry_command *c = &commands[i];
		char path[64], parameters[64] = "\\";

		snprintf(path, sizeof(path), "``%s``", c->path);
		if (c->parameters[0] != '\0')
			snprintf(parameters, sizeof(parameters), "``%s``", c->parameters);
		fprintf(out, "%-*s %-*s %-*s %s\n", width[0], path, width[1], parameters, width[2],
			c->help, c->reply);
	}
	rule(out, width);
}
