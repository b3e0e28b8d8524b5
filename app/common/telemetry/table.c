/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "telemetry/table.h"

LOG_REGISTER("telemetry", "telemetry");

#define COLUMNS 100
#define INDENT	4

static void
print_paragraph(FILE *out, const char *text)
{
	int column = 0;

	while (*text != '\0') {
		const int length = (int)strcspn(text, " ");

		if (column == 0 || column + 1 + length > COLUMNS)
			column = fprintf(out, "%s%*s", column > 0 ? "\n" : "", INDENT, "") -
				(column > 0 ? 1 : 0);
		else
			column += fprintf(out, " ");
		column += fprintf(out, "%.*s", length, text);
		text += length + strspn(text + length, " ");
	}
	fputc('\n', out);
}

int
telemetry_table_serve(const struct telemetry_command *commands, uint32_t n, const char *cmd,
	const char *params, struct rte_tel_data *d)
{
	char message[RTE_TEL_MAX_STRING_LEN];

	for (uint32_t i = 0; i < n; i++) {
		const struct telemetry_command *c = &commands[i];

		if (strcmp(c->path, cmd) != 0)
			continue;
		if (c->parameters[0] != '\0' || params == NULL || params[0] == '\0')
			return c->callback(cmd, params, d);
		rte_tel_data_start_dict(d);
		rte_tel_data_add_dict_int(d, "result", -EINVAL);
		snprintf(message, sizeof(message),
			"takes no parameters; /help,%s describes the command", cmd);
		rte_tel_data_add_dict_string(d, "message", message);
		return 0;
	}
	return -ENOENT;
}

int
telemetry_table_register(const struct telemetry_command *commands, uint32_t n, telemetry_cb serve)
{
	int first = 0;

	for (uint32_t i = 0; i < n; i++) {
		const int ret =
			rte_telemetry_register_cmd(commands[i].path, serve, commands[i].help);

		if (ret == 0)
			continue;
		LOG(ERR, "%s: %s\n", commands[i].path, strerror(-ret));
		first = first == 0 ? ret : first;
	}
	return first;
}

void
telemetry_table_print(const struct telemetry_command *commands, uint32_t n, FILE *out)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct telemetry_command *c = &commands[i];
		char *text;

		if (asprintf(&text, "%s. Reply: %s.", c->help, c->reply) < 0)
			return;
		fprintf(out, "``%s%s%s``\n", c->path, c->parameters[0] != '\0' ? "," : "",
			c->parameters);
		print_paragraph(out, text);
		free(text);
	}
}
