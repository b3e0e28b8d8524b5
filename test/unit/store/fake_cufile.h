/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcufile.so.0 of this test suite, over the device memory of fake_cuda: it knows what cuFile
 * wants of its callers, and refuses what cuFile would. What carries the bytes is the environment's
 * or the test's choice.
 */
#ifndef FAKE_CUFILE_H
#define FAKE_CUFILE_H

#include <stdbool.h>

enum fake_cufile_way {
	FAKE_CUFILE_COMPAT,  /* only with compatibility mode allowed */
	FAKE_CUFILE_NVFS,    /* and it counts */
	FAKE_CUFILE_P2P,     /* and says so */
	FAKE_CUFILE_SILENT,  /* works, and tells nothing */
	FAKE_CUFILE_HEEDLESS /* compatibility mode, which it does not let anybody forbid */
};

struct fake_cufile {
	/* set by the test; FAKE_CUFILE_WAY and FAKE_CUFILE_STATS of the environment come first */
	enum fake_cufile_way way;
	const char *stats;    /* file of counters */
	int fail_register;    /* code of cuFileHandleRegister */
	int fail_write;	      /* code of cuFileWrite: 5000 + n, or 1 for errno = EIO */
	unsigned int shorten; /* calls that do half of what they are asked for */

	/* counted */
	unsigned int opened;
	unsigned int files; /* registered now */
	unsigned int memory;
	unsigned int writes;
	unsigned int reads;
	unsigned int slow;  /* not at multiples of 4096: cuFile copies those */
	unsigned int wrong; /* calls that cuFile refuses: no context, memory it does not know */
};

struct fake_cufile *fake_cufile(void);

#endif /* FAKE_CUFILE_H */
