/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Lines of the text of a geometry file.
 */
#ifndef LINES_H
#define LINES_H

#include <string.h>

/**
 * Take the next line. LF, CR LF or CR alone ends a line, and becomes NUL.
 * @param rest  in, out: the text that follows; NULL: none
 * @return the line; NULL: there is none
 */
static inline char *
lines_next(char **rest)
{
	char *line = *rest, *end;

	if (line == NULL || *line == '\0')
		return NULL;
	end = line + strcspn(line, "\r\n");
	*rest = NULL;
	if (*end != '\0') {
		*rest = end + (end[0] == '\r' && end[1] == '\n' ? 2 : 1);
		*end = '\0';
	}
	return line;
}

/** Remove blanks and tabs at both ends. @return the text without those at its beginning */
static inline char *
lines_strip(char *text)
{
	char *end = text + strlen(text);

	while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	return text + strspn(text, " \t");
}

/** @return first byte that is neither printable ASCII nor a tab; NULL: none */
static inline const unsigned char *
lines_find_other(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	while (*at != '\0' && ((*at >= ' ' && *at <= '~') || *at == '\t'))
		at++;
	return *at != '\0' ? at : NULL;
}

#endif /* LINES_H */
