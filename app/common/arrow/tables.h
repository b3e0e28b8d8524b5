/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The two tables of a run: `frames` has a row for every frame, and `images` has a row for every
 * kept frame (README.rst).
 */
#ifndef ARROW_TABLES_H
#define ARROW_TABLES_H

#include "arrow/schema.h"
#include "gk_abi.h"

/** version of the tables; increases when a column changes its meaning */
#define ARROW_FORMAT_VERSION "1"
/** version of tables with arrow_tables_config.chunks */
#define ARROW_FORMAT_CHUNKS "2"

/** Tables of a run. */
enum arrow_table {
	ARROW_FRAMES,
	ARROW_IMAGES,
	ARROW_TABLES
};

/** @return `frames` or `images` */
const char *arrow_table_name(enum arrow_table table);

struct arrow_reader;

/**
 * Check that a file has a table, in a format of this program.
 * @return what is wrong; NULL: it can be read
 */
const char *arrow_table_problem(const struct arrow_reader *r, enum arrow_table table);

/** Columns of `frames`, in order. */
enum arrow_frames_column {
	FRAMES_FRAME,
	FRAMES_BUNCH_ID,
	FRAMES_DETECTOR_TIME,
	FRAMES_RECEIVE_TIME,
	FRAMES_EXPOSURE,
	FRAMES_DETECTOR_STATUS,
	FRAMES_FLAGS,
	FRAMES_MISSING,
	FRAMES_STRONG_COUNT,
	FRAMES_SUM,
	FRAMES_SATURATED,
	FRAMES_INVALID,
	FRAMES_NNZ,
	FRAMES_VERDICT,
	FRAMES_KIND,
	FRAMES_VETO_VERSION,
	FRAMES_PEDESTAL_VERSION,
	/** and the following one: only with arrow_tables_config.peaks */
	FRAMES_PEAKS,
	FRAMES_SHELL_PEAKS,
	/**
	 * and the following one: only with arrow_tables_config.radial_bins. Without peaks they
	 * follow FRAMES_PEDESTAL_VERSION, see arrow_tables.radial
	 */
	FRAMES_RADIAL_SUM,
	FRAMES_RADIAL_COUNT,
	FRAMES_COLUMNS
};

/** Columns of `images`, in order. */
enum arrow_images_column {
	IMAGES_FRAME,
	IMAGES_KIND,
	IMAGES_ROW_PTR,
	IMAGES_COL,
	IMAGES_VALUE,
	IMAGES_RAW,
	IMAGES_MISSING,
	/** and all following ones: only with arrow_tables_config.peaks */
	IMAGES_PEAK_FS,
	IMAGES_PEAK_SS,
	IMAGES_PEAK_INTENSITY,
	IMAGES_PEAK_SNR,
	IMAGES_PEAK_BACKGROUND,
	IMAGES_PEAK_PIXELS,
	IMAGES_PEAK_PANEL,
	IMAGES_COLUMNS
};

/** Keys of the schema's metadata that arrow_tables_init() sets. */
#define ARROW_META_FORMAT  "braggline.format"
#define ARROW_META_VERSION "braggline.version"
#define ARROW_META_TABLE   "braggline.table"
#define ARROW_META_MODULES "braggline.modules"
#define ARROW_META_ROWS	   "braggline.rows"
#define ARROW_META_COLS	   "braggline.cols"
#define ARROW_META_PACKETS "braggline.packets" /**< of a frame of the whole raster */
#define ARROW_META_VALUE   "braggline.value"   /**< `float32` or `int16` */
/** HDF5 filter of the chunks in the column `raw` */
#define ARROW_META_FILTER "braggline.raw_filter"
/** `KIND:TYPE` separated by commas: type of the values in these chunks */
#define ARROW_META_CHUNKS "braggline.raw_types"

/**
 * Last key of the schema's metadata: 8 digits, CRC-32C of one of the two copies of the first block
 * of the file (arrow_header_build()), with `0` for these digits.
 */
#define ARROW_META_HEADER "braggline.header_crc32c"

/** Keys that the caller supplies if it has their values. */
#define ARROW_META_RUN	    "braggline.run_name"
#define ARROW_META_DETECTOR "braggline.detector"
/** packets of a frame that the readout sends; not in files of 0.1.0: all of the raster */
#define ARROW_META_EXPECTED	 "braggline.expected_packets"
#define ARROW_META_ENERGY	 "braggline.energy_kev"
#define ARROW_META_CSR_THRESHOLD "braggline.csr_threshold"    /**< photons */
#define ARROW_META_STRONG_THRESH "braggline.strong_threshold" /**< photons */
#define ARROW_META_STRONG_MIN	 "braggline.strong_min"
#define ARROW_META_STRONG_MAX	 "braggline.strong_max"
#define ARROW_META_SAMPLE	 "braggline.sample"
/** search for peaks: its options as those of indexamajig, and the veto @{ */
#define ARROW_META_PEAKS	"braggline.peaks"
#define ARROW_META_PEAKS_MIN	"braggline.peaks_min"
#define ARROW_META_PEAKS_MAX	"braggline.peaks_max"
#define ARROW_META_PEAKS_SHELLS "braggline.peaks_shells" /**< limits in angstrom; `none` */
/** @} */
/**
 * radial profiles: quantity in which the bins have equal widths (`q`, `d`, `2theta`), and their
 * centres @{
 */
#define ARROW_META_RADIAL_UNIT	  "braggline.radial_unit"
#define ARROW_META_RADIAL_CENTRES "braggline.radial_centres" /**< 1/angstrom, angstrom, degrees */
/** @} */
/** distance from sample to detector; 0: unknown */
#define ARROW_META_DISTANCE "braggline.distance_mm"
/** in pixels of the picture (geometry/layout.h); 0 if the geometry is not known @{ */
#define ARROW_META_BEAM_X "braggline.beam_x"
#define ARROW_META_BEAM_Y "braggline.beam_y"
/** @} */
/** geometry of the raster, as a file of CrystFEL; absent: not known */
#define ARROW_META_GEOMETRY "braggline.geometry"
/** `crc32c:XXXXXXXX` of the maps as read (struct calibration); `none`: no files. @{ */
#define ARROW_META_PEDESTAL "braggline.pedestal_digest"
#define ARROW_META_GAIN	    "braggline.gain_digest"
#define ARROW_META_MASK	    "braggline.mask_digest"
/** @} */
#define ARROW_META_CALIBRATION \
	"braggline.calibration_digest" /**< of all, output/calibration_file.h */
/** First implausible finding about the maps, or `none`. */
#define ARROW_META_CALIBRATION_WARNING "braggline.calibration_warning"
/**
 * Lists by module: number of pixels with a photon value in G0, and medians of the maps. The gain
 * stage is appended to the key. @{
 */
#define ARROW_META_LIVE		   "braggline.calibration_live_pixels"
#define ARROW_META_PEDESTAL_MEDIAN "braggline.calibration_pedestal_g" /**< ADU */
#define ARROW_META_GAIN_MEDIAN	   "braggline.calibration_gain_g"     /**< ADU/keV */
/** @} */
/** name of the file, which is in the same folder */
#define ARROW_META_CALIBRATION_FILE "braggline.calibration_file"

/** Parameters of the schemas. Everything is copied. */
struct arrow_tables_config {
	uint32_t modules; /**< items per row of frames.missing */
	uint32_t rows;	  /**< of the raster */
	uint32_t cols;
	uint32_t packets; /**< packets of a frame */
	enum gk_value value;
	bool chunks; /**< full images, of int16, are chunks in `raw`; their `value` is empty */
	/** added to the metadata of both schemas, after those of this program */
	const struct arrow_meta *meta;
	unsigned int nb_meta;
	bool peaks;	      /**< peaks are searched: with the columns of peaks */
	uint32_t radial_bins; /**< bins of radial profiles; 0: without their columns */
};

struct arrow_tables {
	struct arrow_schema schema[ARROW_TABLES];
	bool chunks; /**< as configured @{ */
	bool peaks;  /**< @} */
	/** number of the column of `frames` that has FRAMES_RADIAL_SUM; 0: there is none */
	unsigned int radial;
	void *storage; /**< fields and texts of the schemas */
};

/** @return 0; -ENOMEM; -EINVAL: no module, no packet, an empty raster, or chunks of float32 */
int arrow_tables_init(struct arrow_tables *t, const struct arrow_tables_config *config);

void arrow_tables_free(struct arrow_tables *t);

#endif /* ARROW_TABLES_H */
