/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/jungfrau_packets.h"

#include <assert.h>
#include <string.h>

#define SLS_TYPE_JUNGFRAU 3
#define SLS_VERSION	  2

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pixels are copied as they are");

static uint8_t *
put_be16(uint8_t *out, uint16_t value)
{
	*out++ = value >> 8;
	*out++ = value & 0xff;
	return out;
}

static uint8_t *
put_be32(uint8_t *out, uint32_t value)
{
	out = put_be16(out, value >> 16);
	return put_be16(out, value & 0xffff);
}

static uint8_t *
put_le(uint8_t *out, uint64_t value, int bytes)
{
	while (bytes-- > 0) {
		*out++ = value & 0xff;
		value >>= 8;
	}
	return out;
}

static uint8_t *
put_ethernet(uint8_t *out, const struct jungfrau_wire *wire, uint32_t stream)
{
	uint32_t low;

	memcpy(out, wire->destination_mac, 6);
	memcpy(out + 6, wire->source_mac, 6);
	/* the last three bytes are free for the vendor to assign: count in them */
	low = (uint32_t)wire->source_mac[3] << 16 | (uint32_t)wire->source_mac[4] << 8 |
		wire->source_mac[5];
	low += stream;
	out[9] = low >> 16 & 0xff;
	put_be16(out + 10, low & 0xffff);
	return put_be16(out + 12, 0x0800);
}

static uint8_t *
put_ipv4(uint8_t *out, const struct jungfrau_wire *wire, uint32_t stream, uint16_t id)
{
	uint8_t *start = out;
	uint32_t sum = 0;

	*out++ = 0x45; /* version 4, 5 words */
	*out++ = 0;
	out = put_be16(out, JUNGFRAU_IPV4_BYTES + JUNGFRAU_UDP_BYTES + JUNGFRAU_UDP_PAYLOAD);
	out = put_be16(out, id);
	out = put_be16(out, 0x4000); /* don't fragment */
	*out++ = 64;		     /* time to live */
	*out++ = 17;		     /* UDP */
	out = put_be16(out, 0);
	out = put_be32(out, wire->source_ip + stream);
	out = put_be32(out, wire->destination_ip);

	for (int i = 0; i < JUNGFRAU_IPV4_BYTES; i += 2)
		sum += (uint32_t)start[i] << 8 | start[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	put_be16(start + 10, ~sum & 0xffff);
	return out;
}

static uint8_t *
put_udp(uint8_t *out, const struct jungfrau_wire *wire, uint32_t stream)
{
	out = put_be16(out, wire->source_port);
	out = put_be16(out, wire->port + stream);
	out = put_be16(out, JUNGFRAU_UDP_BYTES + JUNGFRAU_UDP_PAYLOAD);
	return put_be16(out, 0); /* not computed */
}

void
jungfrau_sls_make(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	uint32_t module, uint32_t interface, uint32_t packet, uint8_t out[JUNGFRAU_SLS_BYTES])
{
	uint32_t row = module % wire->column_modules * wire->interfaces + interface;
	uint32_t column = module / wire->column_modules;

	out = put_le(out, header->number, 8);
	out = put_le(out, header->exposure, 4);
	out = put_le(out, packet, 4);
	out = put_le(out, header->bunch_id, 8); /* detSpec1 */
	out = put_le(out, header->timestamp, 8);
	out = put_le(out, wire->module_id + module, 2);
	out = put_le(out, row, 2);
	out = put_le(out, column, 2);
	out = put_le(out, 0, 2);		/* detSpec2 */
	out = put_le(out, header->daq_info, 4); /* detSpec3 */
	out = put_le(out, 0, 2);		/* detSpec4 */
	*out++ = SLS_TYPE_JUNGFRAU;
	*out = SLS_VERSION;
}

/* IP identification: counts the packets of the stream. */
static uint16_t
ip_identification(const struct jungfrau_wire *wire, uint64_t number, uint32_t place)
{
	return (number * jungfrau_stream_packets(wire) + place) & 0xffff;
}

void
jungfrau_header_make(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	uint32_t module, uint32_t interface, uint32_t packet, uint8_t out[JUNGFRAU_HEADER_BYTES])
{
	uint32_t stream = module * wire->interfaces + interface;
	uint32_t place = packet - jungfrau_stream_first(wire, interface);

	out = put_ethernet(out, wire, stream);
	out = put_ipv4(out, wire, stream, ip_identification(wire, header->number, place));
	out = put_udp(out, wire, stream);
	jungfrau_sls_make(wire, header, module, interface, packet, out);
}

void
jungfrau_header_update(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	uint8_t made[JUNGFRAU_HEADER_BYTES])
{
	uint8_t *ip = made + JUNGFRAU_ETHERNET_BYTES, *sls = made + JUNGFRAU_SLS_OFFSET;
	uint32_t old_id = (uint32_t)ip[4] << 8 | ip[5];
	uint32_t sum = (uint32_t)ip[10] << 8 | ip[11];
	uint64_t old_number;
	uint32_t id;

	memcpy(&old_number, sls, sizeof(old_number));
	id = (old_id + (header->number - old_number) * jungfrau_stream_packets(wire)) & 0xffff;
	/* RFC 1624: checksum' = ~(~checksum + ~old + new) */
	sum = (~sum & 0xffff) + (~old_id & 0xffff) + id;
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	put_be16(ip + 4, id);
	put_be16(ip + 10, ~sum & 0xffff);

	memcpy(sls, &header->number, 8);
	memcpy(sls + 8, &header->exposure, 4);
	memcpy(sls + 16, &header->bunch_id, 8);
	memcpy(sls + 24, &header->timestamp, 8);
	memcpy(sls + 40, &header->daq_info, 4);
}

void
jungfrau_packet_make(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	uint32_t module, uint32_t interface, uint32_t packet, const uint16_t raw[JUNGFRAU_PIXELS],
	uint8_t out[JUNGFRAU_PACKET_BYTES])
{
	jungfrau_header_make(wire, header, module, interface, packet, out);
	memcpy(out + JUNGFRAU_HEADER_BYTES,
		(const uint8_t *)raw + jungfrau_payload_offset(wire, interface, packet),
		JUNGFRAU_PAYLOAD_BYTES);
}
