/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The whole receiver: every part made from the settings, connected, and put on lcores.
 * Control lcore only.
 */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <limits.h>
#include <sched.h>

#include <gk.h>

#include "builder/builder.h"
#include "calib/calibration.h"
#include "egress/egress.h"
#include "output/batch_writer.h"
#include "rx/lcores.h"
#include "port/memory.h"
#include "calib/pedestal.h"
#include "port/port.h"
#include "output/preview.h"
#include "rx/rx.h"
#include "settings.h"
#include "port/placement.h"

/** A host gang's polling role. */
struct gang_worker {
	const struct gk_ops *ops;
	struct gk *gk;
	uint32_t gang;
	uint32_t worker;
};

struct pipeline {
	const struct settings *settings;
	struct placement way;
	struct memory memory;
	struct calibration calibration;
	void *planes;	    /**< memory of its coefficients */
	void *second_plane; /**< pedestals of G0 for the other version, with pedestal intervals */
	const struct gk_ops *gk_ops;
	struct gk *gk;
	bool gk_started;
	struct gk_config gk_config;
	uint8_t *outputs; /**< output slots: device address if way.results says so */
	uint8_t *staging; /**< ... then, what is written to files passes through here */
	struct frame_table *table;
	struct rx_streams *streams;
	struct sources *sources;
	struct source_watch source_watch; /**< of the service thread */
	struct rx *rx[FRAME_RX_MAX];
	struct port ports[SETTINGS_PORTS_MAX];
	uint32_t nb_ports;
	struct builder *builder;
	struct rte_ring *egress;
	struct egress *stores;	       /**< NULL: files are written here */
	struct compressor *compressor; /**< NULL: the writer compresses by itself */
	struct rte_ring *returned;
	cpu_set_t writer_cpus; /**< for threads off the datapath */
	struct preview *preview;
	struct pedestal *pedestal; /**< of a dark run, else NULL */
	struct gang_worker *workers;
	struct lcores *lcores;
};

/**
 * Make everything, ports included: packets may arrive from now on, and wait.
 * @param settings      settled by placement_choose()
 * @param process_cpus  CPUs that the process had before EAL pinned the main lcore
 * @return 0 or -errno (logged); pipeline_destroy() in either case
 */
int pipeline_create(struct pipeline *p, const struct settings *settings,
	const struct placement *way, const cpu_set_t *process_cpus);

/**
 * Load the calibration of a run: no gang works.
 * @return 0 or -errno (logged)
 */
int pipeline_calibrate(struct pipeline *p, const struct calibration_files *files);

/**
 * Make the writer of a run and start it.
 * @param s        settings of the run
 * @param message  receives what is wrong; RUN-sized, see file_writer_create()
 */
int pipeline_open_files(struct pipeline *p, const struct settings *s, struct file_writer **writer,
	char message[PATH_MAX]);

/**
 * Make the files of a run as pipeline_open_files() does, and remove them again: for --check. With
 * stores, the directory and the maps are all that a run makes here.
 * @param s            settled by placement_choose(); of a service the run's name is none of them
 * @param calibration  what its maps were loaded to; NULL: they could not be
 * @param made         receives whether the directory was not there
 * @param message      receives what is wrong
 * @return 0 or -errno, as the start of the run gives it
 */
int pipeline_try_files(const struct settings *s, const struct calibration *calibration, bool *made,
	char message[PATH_MAX]);

/**
 * A dark run is over, its frames are all taken: write what they show.
 * @param text  receives a sentence for people; at least 256 bytes
 * @return 0 or -errno; 0 too if the run was none
 */
int pipeline_write_pedestals(struct pipeline *p, const struct settings *s, char *text, size_t size);

/**
 * Why a gang gave up, in words: what is wrong with its descriptor, or which setting ended it. Any
 * thread, until gangs are stopped.
 * @param gang,error  by builder_failed_gang(), the gang from 0 on
 */
void pipeline_why_gang(const struct pipeline *p, uint32_t gang, int error, char *text, size_t size);

/** Stop ports, free everything. Runs and their writers are over. @return mbufs that leaked */
uint32_t pipeline_destroy(struct pipeline *p);

#endif /* PIPELINE_H */
