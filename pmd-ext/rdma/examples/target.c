/* SPDX-License-Identifier: BSD-3-Clause */
#include "target.h"

#include <rte_common.h>

#define AT(member) offsetof(struct target, member)

static const struct option_row common_rows[] = {
	{0, "device", "DEVICE", OPTION_TEXT, AT(device), 0, 0,
		"roce:port=0,ip=10.0.0.1/24[,...] or verbs:NAME[,...]"},
	{'e', "events", NULL, OPTION_FLAG, AT(sleepy), 0, 0, "yield the CPU when idle"},
	{0, "wait", "S", OPTION_U32, AT(wait), 0, 86400,
		"client: retry for this time while no server listens (0; push, fetch: 60)"},
	{0, "capture", "FILE", OPTION_TEXT, AT(capture), 0, 0,
		"write all frames to a pcap file (roce)"},
	{0, "loss", "PERCENT", OPTION_REAL, AT(loss), 0, 100, "lose frames, both ways (roce)"},
	{0, "seed", "N", OPTION_U64, AT(seed), 0, UINT64_MAX, "seed of the loss (1)"},
	{0, "stats", NULL, OPTION_FLAG, AT(stats), 0, 0,
		"print the device's non-zero counters at the end"},
};

enum options_result
target_parse(int argc, char **argv, const struct option_row *rows, unsigned int nb_rows,
	void *values, struct target *target, const char *usage, const char **words,
	unsigned int max_words)
{
	const struct option_group groups[] = {
		{rows, nb_rows, values}, {common_rows, RTE_DIM(common_rows), target}};

	target->seed = 1;
	return options_parse(argc, argv, groups, RTE_DIM(groups), usage, words, max_words);
}
