/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the settings of sources and destinations into a filter for each stream. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_string_fns.h>

#include "config/config.h"
#include "config/ini_file.h"
#include "source_settings.h"
#include "whole_number.h"

/** IPv4 addresses of a list item: ADDRESS, ADDRESS/PREFIX or FIRST-LAST, each with [:PORT]. */
struct item {
	uint32_t first, last; /**< host byte order */
	uint32_t mask;
	uint16_t port; /**< 0 = any */
};

static bool
parse_ip(const char *text, uint32_t *ip)
{
	struct in_addr address;

	if (inet_pton(AF_INET, text, &address) != 1)
		return false;
	*ip = ntohl(address.s_addr);
	return true;
}

static bool
parse_item(char *text, struct item *item, bool with_port)
{
	char *port = strchr(text, ':'), *prefix, *last;
	uint64_t number;

	*item = (struct item){.mask = UINT32_MAX};
	if (port != NULL) {
		*port++ = '\0';
		if (!with_port || !whole_number(port, 1, UINT16_MAX, &number))
			return false;
		item->port = number;
	}
	last = strchr(text, '-');
	if (last != NULL) {
		*last++ = '\0';
		return parse_ip(text, &item->first) && parse_ip(last, &item->last) &&
			item->first <= item->last;
	}
	prefix = strchr(text, '/');
	if (prefix != NULL) {
		*prefix++ = '\0';
		if (!whole_number(prefix, 0, 32, &number))
			return false;
		item->mask = number == 0 ? 0 : UINT32_MAX << (32 - number);
	}
	if (!parse_ip(text, &item->first))
		return false;
	item->last = item->first;
	return (item->first & ~item->mask) == 0;
}

/** Return true if hosts may send from these addresses. 0.0.0.0/0 contains all of them. */
static bool
is_sender(const struct item *item)
{
	uint32_t first = item->first >> 24, last = (item->last | ~item->mask) >> 24;

	return item->mask == 0 || (first >= 1 && last < 224);
}

/** Header bytes that are expected, and the bits of them that are compared. */
struct bytes {
	uint8_t value[SOURCE_HEADERS];
	uint8_t mask[SOURCE_HEADERS];
};

static void
put(struct bytes *b, uint32_t at, const void *value, const void *mask, uint32_t size)
{
	memcpy(&b->value[at], value, size);
	memcpy(&b->mask[at], mask, size);
}

static void
put_ip(struct bytes *b, uint32_t at, uint32_t ip, const struct item *item)
{
	const rte_be32_t value = rte_cpu_to_be_32(ip), mask = rte_cpu_to_be_32(item->mask);
	const rte_be16_t port = rte_cpu_to_be_16(item->port), all = RTE_BE16(UINT16_MAX);

	put(b, at, &value, &mask, sizeof(value));
	if (item->port != 0)
		put(b, SOURCE_PORT_FROM, &port, &all, sizeof(port));
}

/** Report a list that has neither one item nor one for each stream. */
static void
complain_of_count(struct config *c, const char *key, uint32_t found, uint32_t streams)
{
	char what[128];

	if (streams == 1)
		snprintf(what, sizeof(what), "found %u addresses; expected one for the one stream",
			found);
	else
		snprintf(what, sizeof(what),
			"found %u addresses; expected one for all streams, or %u, one per stream",
			found, streams);
	config_complain(c, "detector", key, what);
}

/**
 * Read a list of IPv4 addresses.
 * @param at     offset of the address in the headers
 * @param bytes  in, out: by stream
 * @return false: the list is wrong, which is reported to `c`
 */
static bool
read_addresses(struct config *c, const char *key, const char *text, uint32_t at, bool with_port,
	uint32_t streams, struct bytes *bytes)
{
	char copy[INI_VALUE_LEN], *rest = copy, *word;
	struct item item;
	uint32_t n = 0;

	rte_strscpy(copy, text, sizeof(copy));
	while ((word = strtok_r(rest, ", ", &rest)) != NULL) {
		if (!parse_item(word, &item, with_port)) {
			config_complain(c, "detector", key,
				with_port ? "must be a list of ADDRESS, ADDRESS/PREFIX or "
					    "FIRST-LAST (IPv4), each with or without :PORT"
					  : "must be a list of ADDRESS, ADDRESS/PREFIX or "
					    "FIRST-LAST (IPv4)");
			return false;
		}
		if (with_port && !is_sender(&item)) {
			config_complain(c, "detector", key,
				"must be addresses that hosts send from, 1.0.0.0 ... "
				"223.255.255.255");
			return false;
		}
		for (uint64_t ip = item.first; ip <= item.last && n <= streams; ip++, n++)
			if (n < streams)
				put_ip(&bytes[n], at, ip, &item);
	}
	if (n != 1 && n != streams) {
		complain_of_count(c, key, n, streams);
		return false;
	}
	for (uint32_t s = 1; n == 1 && s < streams; s++)
		put_ip(&bytes[s], at, item.first, &item);
	return true;
}

static void
read_macs(struct config *c, const char *text, uint32_t streams, struct bytes *bytes)
{
	static const struct rte_ether_addr all = {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}};
	char copy[INI_VALUE_LEN], *rest = copy, *word;
	struct rte_ether_addr mac;
	uint32_t n = 0;

	rte_strscpy(copy, text, sizeof(copy));
	for (; (word = strtok_r(rest, ", ", &rest)) != NULL; n++) {
		if (rte_ether_unformat_addr(word, &mac) != 0) {
			config_complain(c, "detector", "source_mac",
				"must be a list of MAC addresses, 00:11:22:33:44:55");
			return;
		}
		if (!rte_is_valid_assigned_ether_addr(&mac)) {
			config_complain(c, "detector", "source_mac",
				"must be addresses that hosts send from: the first byte is even, "
				"and not all bytes are 0");
			return;
		}
		if (n < streams)
			put(&bytes[n], SOURCE_MAC_FROM, &mac, &all, sizeof(mac));
	}
	if (n != 1 && n != streams)
		complain_of_count(c, "source_mac", n, streams);
	for (uint32_t s = 1; n == 1 && s < streams; s++)
		put(&bytes[s], SOURCE_MAC_FROM, &mac, &all, sizeof(mac));
}

void
source_filter_ipv4(
	const struct source_filter *f, struct rte_ipv4_hdr *spec, struct rte_ipv4_hdr *mask)
{
	/* source and destination are adjacent in a header, and in the word */
	memcpy(&spec->src_addr, &f->value[SOURCE_WORD_IP], sizeof(f->value[SOURCE_WORD_IP]));
	memcpy(&mask->src_addr, &f->mask[SOURCE_WORD_IP], sizeof(f->mask[SOURCE_WORD_IP]));
}

void
source_filter_set(struct source_filter *f, const uint64_t value[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS])
{
	memcpy(f->value, value, sizeof(f->value));
	memcpy(f->mask, mask, sizeof(f->mask));
	f->port = value[SOURCE_WORDS - 1];
	f->port_mask = mask[SOURCE_WORDS - 1];
}

void
source_settings_read(struct source_settings *s, struct config *c, const struct detector *detector)
{
	const char *source = config_text(c, "detector", "source", "auto");
	const char *mac = config_text(c, "detector", "source_mac", "any");
	const char *destination = config_text(c, "detector", "destination", "auto");
	const char *positions = config_text(c, "detector", "positions", "auto");
	struct bytes bytes[DETECTOR_STREAMS_MAX] = {0};
	uint64_t value[SOURCE_WORDS], mask[SOURCE_WORDS];
	uint64_t column;

	s->any = strcmp(source, "any") == 0;
	s->source = s->any;
	if (!s->any && strcmp(source, "auto") != 0)
		s->source = read_addresses(
			c, "source", source, SOURCE_IP_FROM, true, detector->streams, bytes);
	if (strcmp(mac, "any") != 0)
		read_macs(c, mac, detector->streams, bytes);
	if (strcmp(destination, "auto") != 0)
		s->destination = read_addresses(c, "destination", destination, SOURCE_IP_TO, false,
			detector->streams, bytes);
	for (uint32_t i = 0; i < detector->streams; i++) {
		source_words(bytes[i].value, 0, value);
		source_words(bytes[i].mask, 0, mask);
		source_filter_set(&s->filter[i], value, mask);
	}
	if (strcmp(positions, "off") == 0)
		s->positions = SOURCE_POSITIONS_OFF;
	else if (whole_number(positions, 1, DETECTOR_MODULES_MAX, &column))
		s->positions = column;
	else if (strcmp(positions, "auto") != 0)
		config_complain(c, "detector", "positions",
			"must be auto, off, or the number of modules in a column of the "
			"detector, 1 ... " RTE_STR(DETECTOR_MODULES_MAX));
}
