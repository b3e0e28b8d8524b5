/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The whole receiver: creates every part from the settings, connects the parts and assigns them to
 * lcores. Control lcore only.
 */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <limits.h>
#include <sched.h>

#include <stdbool.h>
#include <stdint.h>

struct builder;
struct calibration;
struct calibration_files;
struct compressor;
struct egress;
struct batch_writer;
struct frame_table;
struct gang_worker;
struct gk;
struct gk_config;
struct geometry;
struct gk_ops;
struct gk_peak_panel;
struct lcores;
struct memory;
struct pedestal;
struct pipeline_own;
struct placement;
struct port;
struct live;
struct preview;
struct rte_ring;
struct rx;
struct rx_messages;
struct rx_streams;
struct settings;
struct source_watch;
struct sources;

/** The parts of the receiver. Code that uses a part includes its header. */
struct pipeline {
	struct pipeline_own *own; /**< parts without memory of their own */
	const struct settings *settings;
	const struct placement *placement;
	struct memory *memory;
	const struct calibration *calibration;
	void *planes;	    /**< memory of the coefficients */
	void *second_plane; /**< G0 pedestals of the other version; used with pedestal intervals */
	const struct gk_ops *gk_ops;
	struct gk *gk;
	bool gk_started;
	struct gk_config *gk_config;
	struct geometry *geometry; /**< of the maps of pixels; NULL: there are none */
	double *radial_centres;	   /**< of the bins of radial profiles; NULL: none are made */
	struct gk_peak_panel *panels;
	/** output slots; in the journal, or a device address if they are in device memory */
	uint8_t *outputs;
	/** numbers of the slots that the gangs get first; NULL: all of them */
	uint32_t *first_outputs;
	uint8_t *staging; /**< with device memory: buffer for data that is copied to files */
	struct frame_table *table;
	struct rx_streams *streams;
	struct rx_messages *messages; /**< RoCE streams; NULL: UDP */
	struct sources *sources;
	struct source_watch *source_watch; /**< watch of the service thread */
	struct rx **rx;			   /**< one for each RX lcore of the settings */
	struct port *ports;
	uint32_t nb_ports;
	struct builder *builder;
	struct rte_ring *egress;       /**< records to the writer */
	struct egress *stores;	       /**< NULL: the receiver writes local files */
	struct compressor *compressor; /**< NULL: the writer compresses */
	struct rte_ring *returned;
	cpu_set_t writer_cpus; /**< CPUs of threads off the datapath */
	struct preview *preview;
	struct live *live;
	struct pedestal *pedestal; /**< of a dark run, otherwise NULL */
	struct gang_worker *workers;
	struct lcores *lcores;
};

/**
 * Create everything, including the ports. Packets may arrive from now on and wait in the ports.
 * @param settings      completed by placement_choose()
 * @param process_cpus  CPUs of the process before EAL pinned the main lcore
 * @return 0 or -errno (logged), -EINVAL: the settings are wrong, or do not fit the EAL options or
 *   the journal; call pipeline_destroy() in either case
 */
int pipeline_create(struct pipeline *p, const struct settings *settings,
	const struct placement *placement, const cpu_set_t *process_cpus);

/**
 * Load the calibration of a run. No gang may be working.
 * @return 0 or -errno (logged)
 */
int pipeline_calibrate(struct pipeline *p, const struct calibration_files *files);

/**
 * Create the writer of a run and start it.
 * @param s        settings of the run
 * @param message  receives the error, see batch_writer_create()
 */
int pipeline_open_files(struct pipeline *p, const struct settings *s, struct batch_writer **writer,
	char message[PATH_MAX]);

/** Return the path of the preview of a run, which may be `path`. @return NULL: none */
const char *pipeline_preview_path(const struct settings *s, char path[PATH_MAX]);

/** Return the path of the live file, which may be `path`. @return NULL: none */
const char *pipeline_live_path(const struct settings *s, char path[PATH_MAX]);

/**
 * Create the files of a run as pipeline_open_files() does, and remove them again; for --check. With
 * stores, a run creates only the directory and the coefficient maps on this machine.
 * @param s            completed by placement_choose(); in service mode the name is not that of a
 *   real run
 * @param calibration  the loaded maps; NULL: they could not be loaded
 * @param made         receives true if the directory did not exist
 * @param message      receives the error
 * @return 0 or -errno, the same value that the start of the run returns
 */
int pipeline_try_files(const struct settings *s, const struct calibration *calibration, bool *made,
	char message[PATH_MAX]);

/**
 * Write the pedestals of a dark run, after it has ended and all its frames were processed.
 * @param text     receives a readable summary; at least 400 bytes
 * @param warning  receives a warning if many pixels are masked, else ""
 * @return 0 or -errno; 0 also if the run was not a dark run
 */
int pipeline_write_pedestals(struct pipeline *p, const struct settings *s, char *text, size_t size,
	char *warning, size_t warning_size);

/**
 * Describe in words why a gang failed: an error in its descriptor, or the setting that ended it.
 * Any thread, until the gangs are stopped.
 * @param gang,error  from builder_failed_gang(), the gang counted from 0
 */
void pipeline_why_gang(const struct pipeline *p, uint32_t gang, int error, char *text, size_t size);

/**
 * Look for a port or an RDMA device that was removed or has failed. Any thread.
 * @param name  out
 * @return false: there is none
 */
bool pipeline_lost_device(const struct pipeline *p, char *name, size_t size);

/**
 * Stop the ports and free everything. All runs and their writers must have ended.
 * @return number of leaked mbufs
 */
uint32_t pipeline_destroy(struct pipeline *p);

#endif /* PIPELINE_H */
