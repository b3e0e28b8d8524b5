/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda.so.1 and a libgdrapi.so.2 of this test suite: device memory is host memory, calls are
 * counted, and any symbol can be told to fail. A test that links them has their sonames loaded
 * already when the driver opens them.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAKE_DEVICES = 2,
	FAKE_SYMBOLS = 29, /* that the driver asks for */
};

struct fake_cuda {
	/* set by the test */
	const char *fail;	/* name of a function to fail; NULL: none */
	int fail_with;		/* CUresult */
	unsigned int fail_skip; /* calls of it that succeed before */
	const char *hide;	/* symbol that cuGetProcAddress does not find */
	int hide_status; /* ... and the symbolStatus that it says so with, returning success */
	int ordering;	 /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING */
	int flush_options;
	int dmabuf;
	uintptr_t host_skew; /* device pointers of registered memory are off by this */
	bool gdr_absent;     /* gdr_open fails */
	int gdr_map_error;

	/* counted by the fakes */
	unsigned int asked; /* symbols, with the version asked for each */
	struct {
		char name[48];
		int version;
	} symbols[64];
	unsigned int contexts; /* references on primary contexts */
	unsigned int pushes;
	unsigned int allocated;	 /* live allocations */
	unsigned int syncs;	 /* SYNC_MEMOPS set */
	unsigned int registered; /* live cuMemHostRegister */
	unsigned int registers;	 /* all of them */
	unsigned int flushes;
	unsigned int mapped; /* live GDRCopy mappings */
	unsigned int pinned;
	unsigned int gdr_inside;   /* threads in calls of GDRCopy, which has no lock */
	unsigned int gdr_overlaps; /* calls of it while another was inside */
	unsigned int streams;	   /* live */
	unsigned int copies;	   /* that nobody has waited for */
};

struct fake_cuda *fake_cuda(void);

/* Contexts on the stack of this thread, and the uppermost (0: none). */
unsigned int fake_cuda_depth(void);
uintptr_t fake_cuda_current(void);
/* Something else's context, as an application leaves one current. */
void fake_cuda_push_foreign(void);
void fake_cuda_pop_foreign(void);

/* What a program does behind the driver's back: cuMemHostRegister() of its own. */
int fake_cuda_register_foreign(void *ptr, size_t size);
int fake_cuda_unregister_foreign(void *ptr);

/* Exact version of a symbol in cudaTypedefs.h that the driver is written for; 0: no such. */
int fake_cuda_version(const char *name);

/* Does nothing: a program that calls it has libgdrapi.so.2 loaded from its start. */
void fake_gdrapi(void);

#endif /* FAKE_CUDA_H */
