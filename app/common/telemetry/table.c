/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include "telemetry/table.h"

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
