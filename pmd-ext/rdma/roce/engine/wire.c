/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of opcodes and RNR timers. */
#include "engine/wire.h"

#define RETH	  ((int)sizeof(struct roce_reth))
#define AETH	  ((int)sizeof(struct roce_aeth))
#define DETH	  ((int)sizeof(struct roce_deth))
#define IMM	  4
#define IETH	  4
#define ATOMIC	  ((int)sizeof(struct roce_atomiceth))
#define ATOMICACK ((int)sizeof(struct roce_atomicack))

#define V	 ROCE_F_VALID
#define FIRST	 ROCE_F_FIRST
#define LAST	 ROCE_F_LAST
#define ONLY	 (ROCE_F_FIRST | ROCE_F_LAST)
#define SEND	 (V | ROCE_F_SEND)
#define WRITE	 (V | ROCE_F_WRITE)
#define RESPONSE (V | ROCE_F_RESPONSE)

/* Requests common to RC and UC. */
#define REQUESTS(t)                                                                        \
	[(t) + ROCE_SEND_FIRST] = {SEND | FIRST, 0}, [(t) + ROCE_SEND_MIDDLE] = {SEND, 0}, \
	       [(t) + ROCE_SEND_LAST] = {SEND | LAST, 0},                                  \
	       [(t) + ROCE_SEND_LAST_IMM] = {SEND | LAST | ROCE_F_IMM, IMM},               \
	       [(t) + ROCE_SEND_ONLY] = {SEND | ONLY, 0},                                  \
	       [(t) + ROCE_SEND_ONLY_IMM] = {SEND | ONLY | ROCE_F_IMM, IMM},               \
	       [(t) + ROCE_WRITE_FIRST] = {WRITE | FIRST | ROCE_F_RETH, RETH},             \
	       [(t) + ROCE_WRITE_MIDDLE] = {WRITE, 0},                                     \
	       [(t) + ROCE_WRITE_LAST] = {WRITE | LAST, 0},                                \
	       [(t) + ROCE_WRITE_LAST_IMM] = {WRITE | LAST | ROCE_F_IMM, IMM},             \
	       [(t) + ROCE_WRITE_ONLY] = {WRITE | ONLY | ROCE_F_RETH, RETH},               \
	       [(t) + ROCE_WRITE_ONLY_IMM] = {WRITE | ONLY | ROCE_F_RETH | ROCE_F_IMM, RETH + IMM}

/* IBTA table 38 */
const struct roce_opcode_info roce_opcodes[256] = {
	REQUESTS(ROCE_RC),
	[ROCE_READ_REQUEST] = {V | ONLY | ROCE_F_RETH, RETH},
	[ROCE_READ_RESPONSE_FIRST] = {RESPONSE | FIRST | ROCE_F_AETH, AETH},
	[ROCE_READ_RESPONSE_MIDDLE] = {RESPONSE, 0},
	[ROCE_READ_RESPONSE_LAST] = {RESPONSE | LAST | ROCE_F_AETH, AETH},
	[ROCE_READ_RESPONSE_ONLY] = {RESPONSE | ONLY | ROCE_F_AETH, AETH},
	[ROCE_ACKNOWLEDGE] = {RESPONSE | ONLY | ROCE_F_AETH, AETH},
	[ROCE_ATOMIC_ACKNOWLEDGE] = {RESPONSE | ONLY | ROCE_F_AETH | ROCE_F_ATOMICACK,
		AETH + ATOMICACK},
	[ROCE_COMPARE_SWAP] = {V | ONLY | ROCE_F_ATOMICETH, ATOMIC},
	[ROCE_FETCH_ADD] = {V | ONLY | ROCE_F_ATOMICETH, ATOMIC},
	[ROCE_SEND_LAST_INV] = {SEND | LAST | ROCE_F_INVALIDATE, IETH},
	[ROCE_SEND_ONLY_INV] = {SEND | ONLY | ROCE_F_INVALIDATE, IETH},
	REQUESTS(ROCE_UC),
	[ROCE_UD + ROCE_SEND_ONLY] = {SEND | ONLY | ROCE_F_DETH, DETH},
	[ROCE_UD + ROCE_SEND_ONLY_IMM] = {SEND | ONLY | ROCE_F_DETH | ROCE_F_IMM, DETH + IMM},
	[ROCE_CNP] = {V | ROCE_F_CNP, 0},
};

const uint32_t roce_rnr_us[32] = {655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960,
	1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880,
	163840, 245760, 327680, 491520};
