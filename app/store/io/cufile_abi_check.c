/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares cufile_abi.h with the CUDA toolkit. Compiled where cufile.h is installed, never linked.
 */
#include <assert.h>
#include <stdbool.h>

#include <cufile.h>

#include "io/cufile_abi.h"

static_assert(CUFILE_BASE_ERROR == CUFILEOP_BASE_ERR, "first code of cuFile");
static_assert(CUFILE_HANDLE_TYPE_FD == CU_FILE_HANDLE_TYPE_OPAQUE_FD, "type of a handle");
static_assert(CUFILE_CONTROL_COMPAT == 1u << CU_FILE_ALLOW_COMPAT_MODE, "compatibility mode");
static_assert(sizeof(struct cufile_error) == sizeof(CUfileError_t), "size of an error");
static_assert(sizeof(struct cufile_descr) == sizeof(CUfileDescr_t), "size of a description");
static_assert(offsetof(struct cufile_descr, handle) == offsetof(CUfileDescr_t, handle) &&
		offsetof(struct cufile_descr, fs_ops) == offsetof(CUfileDescr_t, fs_ops),
	"members of a description");
static_assert(offsetof(struct cufile_properties, later) <= sizeof(CUfileDrvProps_t) &&
		sizeof(struct cufile_properties) >= sizeof(CUfileDrvProps_t),
	"size of the properties");
static_assert(offsetof(struct cufile_properties, status_flags) ==
			offsetof(CUfileDrvProps_t, nvfs.dstatusflags) &&
		offsetof(struct cufile_properties, control_flags) ==
			offsetof(CUfileDrvProps_t, nvfs.dcontrolflags) &&
		offsetof(struct cufile_properties, feature_flags) ==
			offsetof(CUfileDrvProps_t, fflags),
	"flags of the properties");
