/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CSV files of any content, as braggline-scan reads truth and spot files. A value that is accepted
 * is what strtoull() or strtod() reads at the same place.
 */

#include <math.h>

#include "csv_file.h"
#include "seed_corpus.h"

#define COLUMNS 6

void __wrap_escaped_line(FILE *out, const char *format, ...);

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static char path[600];

static void
check_line(const struct csv_file *csv)
{
	uint64_t whole;
	double real;

	for (int column = 0; column < COLUMNS; column++) {
		const bool is_whole = csv_whole(csv, column, &whole);
		const bool is_real = csv_real(csv, column, &real);

		WANT(!is_real || isfinite(real));
		/* a whole number is a number */
		WANT(!is_whole || (is_real && fabs(real - (double)whole) <= 1e-15 * real));
	}
	WANT(!csv_whole(csv, 1 << 20, &whole) || csv->room > 1 << 20);
}

/* Messages about wrong input are not printed. */
void __attribute__((format(printf, 2, 3))) __wrap_escaped_line(FILE *out, const char *format, ...)
{
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char truth[] = "frame,hit\n1,0\n2,1\r\n\n18446744073709551615,1\n";
	static const char spots[] =
		"frame,fs,ss,photons\n1,512.5,17.25,1e3\n1,-0.0,nan,inf\n2,0x10,7,\n";

	seed_begin(argc, argv);
	seed_add("truth", truth, sizeof(truth) - 1);
	seed_add("spots", spots, sizeof(spots) - 1);
	snprintf(path, sizeof(path), "/dev/shm/braggline-fuzz-csv-%d", getpid());
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct csv_file csv;
	unsigned int before = 0;
	FILE *f = fopen(path, "wb");

	WANT(f != NULL);
	WANT(fwrite(data, 1, size, f) == size);
	fclose(f);
	if (csv_open(&csv, path) == 0) {
		const int frame = csv_column(&csv, "frame");

		WANT(frame >= -1 && frame < (int)size);
		(void)csv_column(&csv, "");
		check_line(&csv);
		while (csv_next(&csv)) {
			WANT(csv.number > before);
			before = csv.number;
			check_line(&csv);
		}
		csv_close(&csv);
	}
	unlink(path);
	return 0;
}
