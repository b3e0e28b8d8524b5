/* SPDX-License-Identifier: BSD-3-Clause */

#include "ingest/card.h"

const char *const ingest_transport_names[3] = {
	[INGEST_UDP] = "udp",
	[INGEST_SEND] = "send",
	[INGEST_WRITE] = "write",
};
