/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/spots_output.h"

int
spots_output_open(struct output_file *file, const char *path)
{
	static const char header[] = "frame,fs,ss,photons,h,k,l,panel\n";

	return output_file_open_csv(file, path, header);
}

int
spots_output_frame(struct output_file *file, const struct jungfrau_model *model, uint64_t number,
	const struct jungfrau_frame *frame)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < frame->nb_peaks; i++) {
		const struct jungfrau_peak *peak = &frame->peak[i];
		char panel[GEOMETRY_NAME_LEN], line[160 + GEOMETRY_NAME_LEN];
		int length;

		/* from pixel centres at whole numbers to those of CrystFEL, at half a pixel */
		length = snprintf(line, sizeof(line), "%llu,%.3f,%.3f,%.2f,%d,%d,%d,%s\n",
			(unsigned long long)number, (double)peak->column + 0.5,
			(double)peak->module * JUNGFRAU_ROWS + (double)peak->row + 0.5,
			jungfrau_model_peak_photons(model, peak), peak->index[0], peak->index[1],
			peak->index[2], jungfrau_model_peak_panel(model, peak, panel));
		ret = output_file_write(file, line, (size_t)length);
	}
	return ret;
}
