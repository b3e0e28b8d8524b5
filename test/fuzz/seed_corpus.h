/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Seeds made in code: a folder in TMPDIR that libFuzzer takes as its corpus, gone at exit.
 * Call from LLVMFuzzerInitialize(), which may change the arguments.
 */
#ifndef SEED_CORPUS_H
#define SEED_CORPUS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char seed_dir[512];
static pid_t seed_owner;

static inline void
seed_remove(void)
{
	char path[1024];
	struct dirent *e;
	DIR *dir;

	if (getpid() != seed_owner)
		return; /* libFuzzer forks for some of its modes */
	dir = opendir(seed_dir);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", seed_dir, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(seed_dir);
}

/** An empty corpus, as last argument. */
static inline void
seed_begin(int *argc, char ***argv)
{
	const char *tmp = getenv("TMPDIR");
	char **more = calloc(*argc + 2, sizeof(*more));

	snprintf(
		seed_dir, sizeof(seed_dir), "%s/braggline-fuzz-XXXXXX", tmp != NULL ? tmp : "/tmp");
	if (more == NULL || mkdtemp(seed_dir) == NULL)
		abort();
	seed_owner = getpid();
	atexit(seed_remove);
	memcpy(more, *argv, *argc * sizeof(*more));
	more[(*argc)++] = seed_dir;
	*argv = more;
}

static inline void
seed_add(const char *name, const void *bytes, size_t size)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", seed_dir, name);
	f = fopen(path, "wb");
	if (f == NULL || fwrite(bytes, 1, size, f) != size)
		abort();
	fclose(f);
}

#endif /* SEED_CORPUS_H */
