/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The writer with output slots in the journal: chunks and full images are not copied, whether a
 * gang or the compressor made them; each record returns with a free slot; without a free slot they
 * are copied. The batches in the journal have the bytes of the frames.
 */

#include "egress_rig.h"

#include <rte_ring.h>

#include "../arrow/arrow_sample.h"
#include "builder/compressor.h"
#include "gk_bitshuffle.h"
#include "output/batch_writer.h"

#define FRAMES 12
#define SLOTS  (2 * FRAMES + 4)

static struct sample of;
static struct frame_record records[FRAMES];
static struct rte_ring *to_writer, *from_writer;
static unsigned int nb_kept;  /* calls */
static uint64_t values_bytes; /* of CSR data */

static void
note_kept(void *arg, const struct frame_record *record, const uint8_t *output)
{
	const uint8_t *area = arg;

	assert_ptr_equal(output, area + record->out * of.layout.stride);
	nb_kept++;
}

static uint32_t
nnz_of(const uint8_t *output)
{
	const uint32_t *row_ptr = (const uint32_t *)(output + of.layout.row_ptr);

	return row_ptr[gk_rows(&of.geometry)];
}

/* Write frames of a kind into slots, as gangs do. @param chunks  compressed by the gangs */
static void
make_frames(uint8_t *area, uint32_t *slot, enum gk_kind kind, bool chunks)
{
	values_bytes = 0;
	for (unsigned int i = 0; i < FRAMES;) {
		uint8_t *to = area + slot[i] * of.layout.stride;

		sample_next(&of, 1, 8);
		if (of.record.kind != (uint32_t)kind)
			continue;
		memcpy(to, of.outputs, of.layout.stride);
		if (kind == GK_KIND_CSR)
			values_bytes += nnz_of(to) * of.layout.value_size;
		records[i] = of.record;
		records[i].out = slot[i];
		records[i].peaks = FRAME_NO_SEARCH;
		if (chunks)
			records[i].chunk_bytes = gk_bitshuffle_compress(
				(const uint16_t *)(of.outputs + of.layout.raw),
				gk_pixels(&of.geometry), to + of.layout.raw);
		assert_int_equal(rte_ring_enqueue(to_writer, &records[i++]), 0);
	}
}

/* Check the images in the journal, and count those in slots. */
static uint32_t
count_references(void)
{
	uint32_t batch, at = 0, references = 0;
	char message[PATH_MAX];
	struct journal_batch b;
	struct journal_stats stats;
	uint64_t rows = 0;
	struct journal *r;

	/* it compares the bytes with the CRCs */
	assert_int_equal(journal_open_existing(&r, journal, message), 0);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.damaged, 0);
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		assert_true(journal_get(r, batch, &b));
		references += b.nb_references;
		rows += b.table == ARROW_IMAGES ? b.rows : 0;
	}
	assert_int_equal(stats.slots_held, references);
	assert_int_equal(rows, FRAMES);
	journal_close(r);
	return references;
}

/* @param free  slots that the journal has, beyond those of the gangs */
static void
write_frames(enum gk_kind kind, bool chunks, bool compress, uint32_t free,
	struct batch_writer_stats *stats)
{
	struct batch_writer_config c = {
		.dir = directory,
		.run = "slots",
		.records = to_writer,
		.returns = from_writer,
		.geometry = of.geometry,
		.layout = of.layout,
		.value = of.value,
		.modules = 1,
		.panels = of.panel,
		.nb_panels = SAMPLE_PANELS,
		.receiver_id = 7,
		.frames_interval = 8,
		.images_interval = 4,
		.byte_limit = 1 << 20,
		.kept = note_kept,
	};
	uint32_t slot[SLOTS + 1], nb = 0, returned = 0;
	char message[PATH_MAX];
	struct batch_writer *w;
	uint64_t slot_bytes;
	struct egress *e;
	uint8_t *area;
	void *back;

	unlink(journal);
	slots = (struct egress_slots){of.layout.stride, SLOTS};
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	egress_rest(e);
	area = egress_area(e, &slot_bytes, &c.nb_outputs);
	assert_non_null(area);
	assert_true(slot_bytes == of.layout.stride && c.nb_outputs >= SLOTS);
	while ((slot[nb] = egress_slot_take(e)) != JOURNAL_NO_SLOT)
		assert_true(++nb <= SLOTS);
	while (nb > FRAMES && free-- > 0)
		egress_slot_return(e, slot[--nb]);
	c.outputs = area;
	c.kept_arg = area;
	c.egress = e;
	if (compress)
		c.compressor = compressor_create(3, gk_pixels(&of.geometry));
	nb_kept = 0;
	make_frames(area, slot, kind, chunks);
	if (batch_writer_create(&w, &c, message) < 0)
		fail_msg("%s", message);
	assert_int_equal(batch_writer_start(w), 0);
	/* no store takes the batches */
	assert_int_equal(batch_writer_stop(w, true), -ETIMEDOUT);
	batch_writer_stats_get(w, stats);
	batch_writer_destroy(w);
	compressor_destroy(c.compressor);
	egress_destroy(e);
	for (unsigned int i = 0; i < FRAMES; i++) {
		assert_true(rte_ring_dequeue(from_writer, &back) == 0 && back == &records[i]);
		returned += records[i].out != slot[i];
		for (unsigned int k = 0; k < i; k++)
			assert_int_not_equal(records[k].out, records[i].out);
	}
	assert_int_equal(stats->bad_records, 0);
	assert_int_equal(nb_kept, FRAMES);
	assert_true(stats->kept_bytes > 0);
	/* the gangs get other slots, except for those that had only the plain values */
	assert_int_equal(returned, compress ? 0 : count_references());
}

static void
without_copies(void **state)
{
	struct batch_writer_stats stats;

	write_frames(GK_KIND_IMAGE, false, false, FRAMES, &stats);
	assert_int_equal(stats.copied_bytes, 0);
	assert_int_equal(stats.kept_bytes, FRAMES * gk_pixels(&of.geometry) * of.layout.value_size);
	assert_int_equal(count_references(), FRAMES);
	write_frames(GK_KIND_RAW, true, false, FRAMES, &stats);
	assert_int_equal(stats.copied_bytes, 0);
	assert_int_equal(count_references(), FRAMES);
	write_frames(GK_KIND_RAW, false, true, FRAMES, &stats);
	assert_int_equal(stats.copied_bytes, 0);
	assert_int_equal(count_references(), FRAMES);
	assert_int_equal(stats.no_slot, 0);
}

static void
short_of_slots(void **state)
{
	struct batch_writer_stats stats;

	write_frames(GK_KIND_RAW, true, false, 5, &stats);
	assert_int_equal(count_references(), 5);
	assert_int_equal(stats.no_slot, FRAMES - 5);
	assert_true(stats.copied_bytes > 0);
	write_frames(GK_KIND_RAW, false, true, 5, &stats);
	assert_int_equal(count_references(), 5);
	assert_int_equal(stats.no_slot, FRAMES - 5);
	assert_true(stats.copied_bytes > 0);
}

/* The gangs get as many slots as they need, or none. A message says what the journal lacks. */
static void
begin(void **state)
{
	uint32_t slot[SLOTS + 1], nb, i;
	char message[PATH_MAX];
	uint64_t slot_bytes;
	struct egress *e;

	unlink(journal);
	slots = (struct egress_slots){of.layout.stride, SLOTS};
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	(void)egress_area(e, &slot_bytes, &nb);
	assert_int_equal(nb, SLOTS);
	assert_int_equal(egress_slots_begin(e, nb - 1, slot, message), 0);
	assert_string_equal(message, "");
	for (i = 0; i < nb - 1; i++)
		egress_slot_return(e, slot[i]);

	assert_int_equal(egress_slots_begin(e, nb, slot, message), 0);
	assert_non_null(strstr(message,
		"it is an existing file with 28 output slots, and [gpu] "
		"outputs = 28; to change that, remove it"));
	assert_non_null(strstr(message, journal));
	for (i = 0; i < nb; i++)
		egress_slot_return(e, slot[i]);
	assert_int_equal(egress_slots_begin(e, nb + 1, slot, message), -ENOSPC);
	assert_non_null(strstr(message, "existing file with 28 output slots"));
	egress_destroy(e);

	/* batches have slots */
	write_frames(GK_KIND_RAW, true, false, 5, &(struct batch_writer_stats){0});
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	assert_int_equal(egress_slots_begin(e, nb - 5, slot, message), 0);
	assert_non_null(strstr(message,
		"until stores have batches of an earlier process: they "
		"have 5 of its 28 output slots, and [gpu] outputs = 23;"));
	for (i = 0; i < nb - 5; i++)
		egress_slot_return(e, slot[i]);
	assert_int_equal(egress_slots_begin(e, nb - 4, slot, message), -ENOSPC);
	assert_non_null(strstr(message,
		"until this process ends: batches of an earlier process "
		"have all but 23 of its 28 output slots, and [gpu] outputs = 24;"));
	/* none was kept */
	for (i = 0; egress_slot_take(e) != JOURNAL_NO_SLOT; i++)
		;
	assert_int_equal(i, nb - 5);
	egress_destroy(e);
}

/* The values of CSR data stay where they are; their columns and offsets of rows are copied once. */
static void
lists(void **state)
{
	struct batch_writer_stats stats;

	write_frames(GK_KIND_CSR, false, false, FRAMES, &stats);
	assert_int_equal(count_references(), FRAMES);
	assert_int_equal(stats.no_slot, 0);
	assert_int_equal(stats.copied_bytes, stats.kept_bytes - values_bytes);
	write_frames(GK_KIND_CSR, false, false, 5, &stats);
	assert_int_equal(count_references(), 5);
	assert_int_equal(stats.no_slot, FRAMES - 5);
}

static int
make_rings(void **state)
{
	sample_init(&of, 5, GK_VALUE_F32, 1);
	to_writer = rte_ring_create("to_writer", 64, SOCKET_ID_ANY, 0);
	from_writer = rte_ring_create("from_writer", 64, SOCKET_ID_ANY, 0);
	return to_writer != NULL && from_writer != NULL ? mkdir(directory, 0700) : -1;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_copies, make_rings),
		cmocka_unit_test(short_of_slots),
		cmocka_unit_test(lists),
		cmocka_unit_test(begin),
	};

	return rig_main(tests);
}
