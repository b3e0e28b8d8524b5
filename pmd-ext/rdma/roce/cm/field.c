/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "cm/field.h"

static uint64_t
bits_get(const uint8_t *wire, unsigned int bit, unsigned int bits)
{
	uint64_t value = 0;
	unsigned int i;

	for (i = bit; i < bit + bits; i++)
		value = value << 1 | (wire[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static void
bits_put(uint8_t *wire, unsigned int bit, unsigned int bits, uint64_t value)
{
	unsigned int i;

	for (i = bit + bits; i-- > bit; value >>= 1) {
		const uint8_t mask = 1 << (7 - i % 8);

		wire[i / 8] = value & 1 ? wire[i / 8] | mask : wire[i / 8] & ~mask;
	}
}

void
roce_fields_get(const struct roce_field *field, unsigned int n, const void *wire, void *host)
{
	const struct roce_field *f;

	for (f = field; f < field + n; f++) {
		void *member = (uint8_t *)host + f->at;
		const uint64_t value = f->size ? bits_get(wire, f->bit, f->bits) : 0;

		switch (f->size) {
		case 0:
			memcpy(member, (const uint8_t *)wire + f->bit / 8, f->bits / 8);
			break;
		case 1:
			*(uint8_t *)member = value;
			break;
		case 2:
			*(uint16_t *)member = value;
			break;
		case 4:
			*(uint32_t *)member = value;
			break;
		default:
			*(uint64_t *)member = value;
		}
	}
}

void
roce_fields_put(const struct roce_field *field, unsigned int n, const void *host, void *wire)
{
	const struct roce_field *f;

	for (f = field; f < field + n; f++) {
		const void *member = (const uint8_t *)host + f->at;
		uint64_t value;

		switch (f->size) {
		case 0:
			memcpy((uint8_t *)wire + f->bit / 8, member, f->bits / 8);
			continue;
		case 1:
			value = *(const uint8_t *)member;
			break;
		case 2:
			value = *(const uint16_t *)member;
			break;
		case 4:
			value = *(const uint32_t *)member;
			break;
		default:
			value = *(const uint64_t *)member;
		}
		bits_put(wire, f->bit, f->bits, value);
	}
}
