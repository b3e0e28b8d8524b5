/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench_host.h"

#define CACHES "/sys/devices/system/cpu/cpu0/cache/index%u/%s"

/* The first line of a file, without its newline. @return 0: no such file */
static int
first_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "r");
	int found;

	line[0] = '\0';
	if (f == NULL)
		return 0;
	found = fgets(line, size, f) != NULL;
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	return found;
}

uint64_t
bench_host_cache(unsigned int level)
{
	char path[96], text[64];

	for (unsigned int i = 0;; i++) {
		snprintf(path, sizeof(path), CACHES, i, "level");
		if (!first_line(path, text, sizeof(text)))
			return 0;
		if (strtoul(text, NULL, 10) != level)
			continue;
		snprintf(path, sizeof(path), CACHES, i, "type");
		(void)first_line(path, text, sizeof(text));
		if (strcmp(text, "Instruction") == 0)
			continue;
		snprintf(path, sizeof(path), CACHES, i, "size");
		(void)first_line(path, text, sizeof(text));
		return strtoull(text, NULL, 10) << (strchr(text, 'M') != NULL ? 20 : 10);
	}
}

/* "model name : AMD EPYC": the text after the colon. */
static void
print_field(FILE *out, const char *name, const char *what)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[512], *value;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		value = strchr(line, ':');
		if (value == NULL || strncmp(line, name, strlen(name)) != 0)
			continue;
		/* "model" is also the beginning of "model name" */
		if (strspn(line + strlen(name), " \t") != (size_t)(value - line) - strlen(name))
			continue;
		fprintf(out, "%s%.*s", what, (int)strcspn(value + 2, "\n"), value + 2);
		break;
	}
	if (f != NULL)
		fclose(f);
}

void
bench_host_print(FILE *out)
{
	char pages[128];
	struct utsname u;

	print_field(out, "model name", "");
	print_field(out, "cpu family", ", family ");
	print_field(out, "model", " model ");
	fprintf(out, ", %ld CPUs\n", sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "caches of a CPU: L1d %llu KiB, L2 %llu KiB, L3 %llu KiB (0: unknown)\n",
		(unsigned long long)bench_host_cache(1) >> 10,
		(unsigned long long)bench_host_cache(2) >> 10,
		(unsigned long long)bench_host_cache(3) >> 10);
	(void)first_line("/sys/kernel/mm/transparent_hugepage/enabled", pages, sizeof(pages));
	if (uname(&u) == 0)
		fprintf(out, "%s %s, transparent huge pages: %s, compiled by %s\n", u.sysname,
			u.release, pages[0] != '\0' ? pages : "none", __VERSION__);
}
