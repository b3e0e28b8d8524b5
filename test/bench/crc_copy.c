/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies files into one by read(2) and write(2), computes the CRC-32C of their bytes, and ends with
 * fsync(2). It prints the CRC. This is the least that an export of compressed chunks does.
 *
 * usage: crc_copy TARGET SOURCE...
 */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/crc32c.h"

#define BUFFER (1u << 20)

static void
die(const char *what)
{
	fprintf(stderr, "crc_copy: %s: %s\n", what, strerror(errno));
	exit(1);
}

int
main(int argc, char **argv)
{
	uint8_t *buffer = malloc(BUFFER);
	uint32_t crc = 0;
	ssize_t size;
	int in, out;

	if (argc < 3) {
		fprintf(stderr, "usage: crc_copy TARGET SOURCE...\n");
		return 2;
	}
	out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (buffer == NULL || out < 0)
		die(argv[1]);
	for (int i = 2; i < argc; i++) {
		in = open(argv[i], O_RDONLY);
		if (in < 0)
			die(argv[i]);
		while ((size = read(in, buffer, BUFFER)) > 0) {
			crc = arrow_crc32c(crc, buffer, size);
			if (write(out, buffer, size) != size)
				die(argv[1]);
		}
		if (size < 0)
			die(argv[i]);
		close(in);
	}
	if (fsync(out) < 0 || close(out) < 0)
		die(argv[1]);
	printf("%08x\n", crc);
	free(buffer);
	return 0;
}
