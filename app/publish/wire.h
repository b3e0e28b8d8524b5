/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The messages of braggline-publish. Each is one ZeroMQ message of one part. Both formats describe
 * the same images: int16 photons as in the files of braggline-export (-32768 masked or missing,
 * 32767 saturated; float32 photons are rounded), or, with --raw, uint16 detector words (0xFFFF
 * missing). Peaks are the float32 values of the Arrow file, whose bits are kept: float64 holds
 * every float32 exactly.
 *
 * CrystFEL, MessagePack. A message is an array of one map. CrystFEL takes the first key that is a
 * prefix of the name that it looks for, so no key here is a prefix of a later one.
 *
 *   key            type                   content
 *   detector_data  map                    "type": "<i4"; "shape": [rows, cols]; "data": binary,
 *                                         int32 LE by rows. CrystFEL reads no int16
 *   peaks          map of arrays          "fs", "ss", "intensity": float64, as CrystFEL requires;
 *                                         "snr", "background": float64; "pixels", "panel": integer
 *   photon_energy  float64                eV; 0: not known
 *   clen_mm        float64                distance; 0: not known
 *   frame          integer                frame number
 *   image_id       integer                number of the image in the run, from 0
 *   run_name       string
 *   series_id      integer                as in stream v2
 *   sparse         boolean                pixels below the CSR threshold were not kept: they are 0
 *   seen_ns        integer                ns since 1970: the batch was found in the file
 *
 * The row of `frames` follows if it is known; the names are those of its columns:
 *   bunch_id, detector_time (100 ns), receive_time (ns since 1970), exposure (100 ns),
 *   detector_status, flags, strong_count, sum (float64, photons), saturated, invalid, verdict,
 *   veto_version, pedestal_version: numbers. If peaks were searched: peak_count, which is its
 *   column `peaks`; shell_peaks, array of integers
 *
 * fs and ss are indices of the stored array, 0 is the centre of the first pixel; CrystFEL adds 0.5.
 * A geometry file has `data = detector_data`, `peak_list = peaks`, and no dim lines
 * (geometry/crystfel.h, `live`).
 *
 * A worker (`indexamajig --zmq-input=ADDRESS --zmq-request=next`) has a REQ socket. Each request,
 * regardless of its content, is answered by one image, and each image goes to one worker. Requests
 * wait in the order of their arrival. A subscriber (`--zmq-subscribe=`) has a SUB socket and gets
 * all images for which there is room in its queue.
 *
 * DECTRIS stream v2, CBOR. A message is a map that begins with the tag of self-described CBOR. Its
 * first key is "type". Fields beyond those of DECTRIS are marked by +; its clients ignore them.
 *
 *   start          type, arm_date, beam_center_x, beam_center_y, channels (["default"]),
 *                  count_time, countrate_correction_enabled, detector_description,
 *                  detector_serial_number, detector_translation ([0, 0, distance]),
 *                  flatfield_enabled, frame_time, goniometer, image_dtype ("int16"; raw:
 *                  "uint16"), image_size_x, image_size_y, incident_energy, incident_wavelength,
 *                  number_of_images (0: not known), pixel_mask ({"default": u32 [rows][cols], bits
 *                  of geometry/array.h}; not if the geometry is not known), pixel_mask_enabled,
 *                  pixel_size_x, pixel_size_y, saturation_value, sensor_material,
 *                  sensor_thickness, series_id, series_unique_id, threshold_energy, user_data
 *                  (null), virtual_pixel_interpolation_enabled; + detector_distance, error_value,
 *                  run_name, sample
 *   image          type, series_id, series_unique_id, image_id, real_time, start_time, stop_time,
 *                  series_date, user_data (null), data ({"default": array}); + frame, sparse,
 *                  seen_ns, peaks ({"fs", "ss", "intensity", "snr", "background": float32 arrays;
 *                  "pixels": u32; "panel": u16}); + the row of `frames` as for CrystFEL, and
 *                  xfel_pulse_id, which is bunch_id, as Jungfraujoch has it
 *   end            type, series_id, series_unique_id
 *
 * Lengths are in metres, energies in eV, times in seconds. Numbers that are not known are 0.
 * start_time is detector_time, real_time is exposure, and stop_time is their sum, in ticks of 100
 * ns: [ticks, 10000000]. An array is tag 40 [[rows, cols], typed
 * array]. Pixels are tag 77 (int16 LE) or 69 (uint16 LE) around tag 56500 ["bslz4", 2, chunk]: the
 * chunk is that of HDF5's filter 32008 (arrow/bitshuffle.h). If the file has chunks, these are the
 * bytes of the file.
 * Lists of peaks are byte strings with tag 85, 70 or 69.
 *
 * A client of --stream2 has a PULL socket: each message goes to one client. A client of
 * --stream2-pub has a SUB socket; `start` is sent again when a client subscribes.
 *
 * Sources: CrystFEL 0.12 (im-zmq.c, datatemplate.c, image-msgpack.c), read for facts only; DECTRIS
 * stream v2 documentation; RFC 8949 (CBOR), RFC 8746 (typed arrays).
 */
#ifndef PUBLISH_WIRE_H
#define PUBLISH_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "frame_record.h"
#include "message.h"

/** Bytes of a message that are not pixels: room for about 1000 peaks. */
#define WIRE_REST ((size_t)64 << 10)

/** A run as its clients see it. Texts are UTF-8 or escaped. */
struct wire_series {
	uint32_t id;	       /**< of the run, from 1 */
	const char *unique_id; /**< run name and time at which the run was found */
	const char *run;
	const char *sample;
	const char *description; /**< of the detector */
	const char *material;	 /**< of the sensor */
	double thickness_metres; /**< of the sensor */
	uint32_t rows, cols;
	bool raw; /**< images are detector words */
	double energy_ev;
	double wavelength_angstrom;
	double distance_metres;
	double pixel_metres;
	double beam_x, beam_y; /**< in the array, pixels; 0: outer edge of the first pixel */
	const uint32_t *mask;  /**< [rows][cols], 0: used; NULL: not known */
	uint64_t nb_images;    /**< 0: not known */
	int64_t date_ns;       /**< ns since 1970 at which the run was found */
};

/** Peaks of an image, [nb] each, in the order of the Arrow file. Not aligned. */
struct wire_peaks {
	uint32_t nb;
	const float *fs, *ss, *intensity, *snr, *background;
	const uint32_t *pixels;
	const uint16_t *panel;
};

/** The row of `frames` of an image: its columns (frame_record.h). */
struct wire_frame {
	uint64_t bunch_id;
	uint64_t detector_time; /**< 100 ns */
	int64_t receive_time;	/**< ns since 1970 */
	double sum;		/**< photons */
	uint32_t exposure;	/**< 100 ns */
	uint32_t detector_status;
	uint32_t flags;
	uint32_t strong_count;
	uint32_t saturated;
	uint32_t invalid;
	uint32_t veto_version;
	uint32_t pedestal_version;
	uint8_t verdict;
	bool searched; /**< for peaks: the next members are valid */
	uint32_t peaks;
	uint32_t nb_shells;
	uint32_t shell_peaks[FRAME_SHELLS_MAX];
};

struct wire_image {
	uint64_t id;	/**< in the run, from 0 */
	uint64_t frame; /**< frame number */
	int64_t seen_ns;
	bool sparse;
	const int16_t *photons; /**< [rows][cols]; NULL: `words` */
	const uint16_t *words;	/**< [rows][cols] */
	const uint8_t *chunk;	/**< the values, compressed; NULL: `photons` are compressed */
	uint64_t chunk_size;
	struct wire_peaks peaks;
	const struct wire_frame *info; /**< NULL: not known */
};

/** Size of the largest message of an image with few peaks, bytes. */
static inline size_t
wire_image_size(const struct wire_series *s)
{
	return (size_t)s->rows * s->cols * sizeof(int32_t) + WIRE_REST;
}

/** Number of keys that wire_put_frame() adds. */
unsigned int wire_frame_keys(const struct wire_frame *f);

/** How a format writes keys and numbers. @{ */
struct wire_format {
	void (*key)(void *to, const char *key);
	void (*number)(void *to, uint64_t value);
	void (*time)(void *to, int64_t value);
	void (*real)(void *to, double value);
	void (*array)(void *to, uint32_t nb);
};
/** @} */

/** Put the row of `frames`. @param f  NULL: nothing is put */
void wire_put_frame(const struct wire_format *format, void *to, const struct wire_frame *f);

/**
 * Encode a message for CrystFEL. @param m  out: replaced
 * @return 0; -ENOMEM
 */
int wire_crystfel(struct message *m, const struct wire_series *s, const struct wire_image *i);

/** Encode messages of stream v2. @param m  out: replaced. @return 0; -ENOMEM @{ */
int wire_stream2_start(struct message *m, const struct wire_series *s);
int wire_stream2_image(struct message *m, const struct wire_series *s, const struct wire_image *i);
int wire_stream2_end(struct message *m, const struct wire_series *s);
/** @} */

#endif /* PUBLISH_WIRE_H */
