/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "geometry/crystfel.h"
#include "geometry/lines.h"

#define DIMS_MAX    8
#define PATH_LEN    256
#define STEP_MAX    10.0 /* component of a direction */
#define MODULES_MAX 1024

enum dim {
	DIM_NONE = -4, /* not given */
	DIM_FRAME = -3,
	DIM_SS = -2,
	DIM_FS = -1,
	/* values from 0 are a fixed index */
};

/* Values that a panel must have: bits of draft.given. */
enum given {
	GIVEN_MIN_FS = 1 << 0,
	GIVEN_MAX_FS = 1 << 1,
	GIVEN_MIN_SS = 1 << 2,
	GIVEN_MAX_SS = 1 << 3,
	GIVEN_CORNER_X = 1 << 4,
	GIVEN_CORNER_Y = 1 << 5,
	GIVEN_FS = 1 << 6,
	GIVEN_SS = 1 << 7,
	GIVEN_RES = 1 << 8,
	GIVEN_ADU = 1 << 9,
};

/* A panel that is being read, or the values for panels that are named later. */
struct draft {
	struct geometry_panel panel;
	unsigned int line; /* line that first names the panel */
	unsigned int given;
	double min_fs, max_fs, min_ss, max_ss; /* limits in the array of the data file */
	double res;
	double adu;	 /* ADU per photon, or per eV */
	bool adu_per_ev; /* true: `adu` is per eV; false: per photon */
	double edge;
	int dim[DIMS_MAX];
	bool has_dims; /* false: `dim` has CrystFEL's defaults */
	char data[PATH_LEN];
};

struct bad_draft {
	struct geometry_bad bad;
	unsigned int line;
	unsigned int given; /* min_x, max_x, min_y, max_y */
	char panel[GEOMETRY_NAME_LEN];
};

struct reader {
	struct geometry *g;
	const struct geometry_raster *raster;
	const char *name;
	bool has_lines; /* false: crystfel_check() made the text, so messages name no line */
	unsigned int line;
	char *message;
	struct draft defaults;
	unsigned int unused_line; /* last line with a default that no panel uses yet */
	struct draft *draft;
	struct bad_draft *bad;
	bool has_distance, has_energy;
	double shift_x, shift_y; /* metres */
};

static int __attribute__((format(printf, 4, 5)))
refuse(struct reader *r, unsigned int line, const char *panel, const char *format, ...)
{
	char why[GEOMETRY_MESSAGE_LEN], where[16] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (r->has_lines)
		snprintf(where, sizeof(where), "%u:", line);
	snprintf(r->message, GEOMETRY_MESSAGE_LEN, "%.256s:%s %s%s%s%.600s", r->name, where,
		panel != NULL ? "panel " : "", panel != NULL ? panel : "",
		panel != NULL ? ": " : "", why);
	return -EINVAL;
}

/* Name of the panel of a draft for messages; NULL: defaults of all panels. */
static const char *
name_of(const struct reader *r, const struct draft *d)
{
	return d == &r->defaults ? NULL : d->panel.name;
}

static bool
parse_number(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end != text && *end == '\0' && isfinite(*value);
}

static int
read_number(struct reader *r, const struct draft *d, const char *key, const char *text, double min,
	double max, double *value)
{
	if (parse_number(text, value) && *value >= min && *value <= max)
		return 0;
	return refuse(r, r->line, name_of(r, d), "%.64s = %.64s: expected a number, %g ... %g", key,
		text, min, max);
}

/* Read a direction such as `+0.99x -0.01y`. Only the first term may lack a sign. */
static bool
parse_direction(const char *text, double to[3])
{
	to[0] = to[1] = to[2] = 0;
	for (bool first = true;; first = false) {
		double sign = 1, value = 1;
		char number[64];
		size_t n = 0;

		text += strspn(text, " \t");
		if (*text == '\0')
			return !first;
		if (*text == '+' || *text == '-')
			sign = *text++ == '-' ? -1 : 1;
		else if (!first)
			return false;
		for (; isdigit((unsigned char)*text) || *text == '.' || *text == ' '; text++) {
			if (n == sizeof(number) - 1)
				return false;
			if (*text != ' ')
				number[n++] = *text;
		}
		number[n] = '\0';
		if (n > 0 && !parse_number(number, &value))
			return false;
		if (*text < 'x' || *text > 'z')
			return false;
		to[*text++ - 'x'] += sign * value;
	}
}

static int
read_direction(
	struct reader *r, const struct draft *d, const char *key, const char *text, double to[3])
{
	if (parse_direction(text, to) && fabs(to[0]) <= STEP_MAX && fabs(to[1]) <= STEP_MAX &&
		fabs(to[2]) <= STEP_MAX && (to[0] != 0 || to[1] != 0 || to[2] != 0))
		return 0;
	return refuse(r, r->line, name_of(r, d),
		"%s = %.64s: expected a direction in x, y and z, such as +1.0x -0.01y, without "
		"exponents",
		key, text);
}

/* Split `0.1 m` into number and unit. @return false: a path of a data file, or no number */
static bool
split_unit(char *text, double *value, const char **unit)
{
	char *blank = strpbrk(text, " \t");

	*unit = "";
	if (blank != NULL) {
		*blank++ = '\0';
		*unit = blank + strspn(blank, " \t");
	}
	return parse_number(text, value);
}

static bool
is_location(const char *text)
{
	char *end;

	/* nan and inf are not paths */
	(void)strtod(text, &end);
	return (text[0] == '/' || isalpha((unsigned char)text[0]) || text[0] == '_') &&
		(end == text || *end != '\0');
}

/* Read a length in metres. @return 1: a location in data files */
static int
read_length(struct reader *r, const char *key, char *text, double min, double max, double *metres)
{
	const char *unit;
	const bool is_number = split_unit(text, metres, &unit);

	if (!is_number && !is_location(text))
		return refuse(r, r->line, NULL,
			"%s = %.64s: expected a length with its unit, m or mm, or a path in data "
			"files",
			key, text);
	if (strcmp(unit, "mm") == 0)
		*metres /= 1000;
	else if (strcmp(unit, "m") != 0 && unit[0] != '\0')
		return refuse(
			r, r->line, NULL, "%s: the unit is %.32s, expected m or mm", key, unit);
	if (!is_number)
		return 1;
	if (*metres >= min && *metres <= max)
		return 0;
	return refuse(r, r->line, NULL, "%s is %g m, expected %g ... %g m", key, *metres, min, max);
}

static int
read_energy(struct reader *r, const char *key, char *text)
{
	const bool is_wavelength = key[0] == 'w';
	const char *unit;
	double value;
	bool is_number;

	if (r->has_energy)
		return refuse(r, r->line, NULL,
			"%s: a second photon energy or wavelength; remove one", key);
	r->has_energy = true;
	is_number = split_unit(text, &value, &unit);
	if (!is_number && !is_location(text))
		return refuse(r, r->line, NULL,
			"%s = %.64s: expected a number, or a path in data "
			"files",
			key, text);
	if (is_wavelength) {
		if (strcmp(unit, "m") == 0)
			value *= 1e10;
		else if (strcmp(unit, "A") != 0 && (is_number || unit[0] != '\0'))
			return refuse(r, r->line, NULL,
				"wavelength: the unit is '%.32s', expected A or m", unit);
		value = GEOMETRY_HC / value;
	} else if (strcmp(unit, "keV") == 0) {
		value *= 1000;
	} else if (strcmp(unit, "eV") != 0 && unit[0] != '\0') {
		return refuse(r, r->line, NULL,
			"photon_energy: the unit is '%.32s', expected eV or keV", unit);
	}
	if (!is_number)
		return 0;
	if (!(value >= GEOMETRY_ENERGY_MIN && value <= GEOMETRY_ENERGY_MAX))
		return refuse(r, r->line, NULL, "%s: the energy is %g eV, expected %g ... %g eV",
			key, value, GEOMETRY_ENERGY_MIN, GEOMETRY_ENERGY_MAX);
	r->g->energy_ev = value;
	return 0;
}

static int
read_shift(struct reader *r, const char *key, char *text)
{
	double *to = key[strlen(key) - 1] == 'x' ? &r->shift_x : &r->shift_y;
	int ret = read_length(r, key, text, -10, 10, to);

	if (ret == 1)
		ret = refuse(r, r->line, NULL,
			"%s = %.64s: a shift for each frame is not supported; give a number, or "
			"remove the line",
			key, text);
	return ret;
}

static int
read_dim(struct reader *r, struct draft *d, const char *key, const char *text)
{
	double index;
	int *dim;

	if (key[3] < '0' || key[3] >= '0' + DIMS_MAX || key[4] != '\0')
		return refuse(r, r->line, name_of(r, d), "%.64s: expected dim0 ... dim%d", key,
			DIMS_MAX - 1);
	for (unsigned int i = 0; i < DIMS_MAX && !d->has_dims; i++)
		d->dim[i] = DIM_NONE;
	d->has_dims = true;
	dim = &d->dim[key[3] - '0'];
	if (strcmp(text, "%") == 0)
		*dim = DIM_FRAME;
	else if (strcmp(text, "ss") == 0)
		*dim = DIM_SS;
	else if (strcmp(text, "fs") == 0)
		*dim = DIM_FS;
	else if (parse_number(text, &index) && index >= 0 && index < MODULES_MAX &&
		index == floor(index))
		*dim = (int)index;
	else
		return refuse(r, r->line, name_of(r, d),
			"%s = %.64s: expected %%, ss, fs or an index below %d", key, text,
			MODULES_MAX);
	return 0;
}

/* Keys whose values do not change where pixels are, or that only CrystFEL's programs need. */
static bool
is_ignored(const char *key)
{
	static const char *const keys[] = {"saturation_map", "saturation_map_file", "flag_equal",
		"flag_lessthan", "flag_morethan", "badrow_direction", "bandwidth", "peak_list",
		"peak_list_type", NULL};

	for (unsigned int i = 0; keys[i] != NULL; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	/* mask, maskN_data, maskN_file, maskN_goodbits, maskN_badbits and the old names */
	return strncmp(key, "mask", 4) == 0 && strcmp(key, "mask_edge_pixels") != 0;
}

/* Read a truth value. CrystFEL takes any other word as false. */
static int
read_flag(struct reader *r, const struct draft *d, const char *key, const char *text, bool *flag)
{
	double number = 0;

	*flag = strcasecmp(text, "true") == 0;
	if (*flag || strcasecmp(text, "false") == 0)
		return 0;
	if (!parse_number(text, &number))
		return refuse(r, r->line, name_of(r, d), "%s = %.64s: expected true, false, 1 or 0",
			key, text);
	*flag = number != 0;
	return 0;
}

/* Read a key of a panel, or a default of those that are named later. */
static int
read_panel_key(struct reader *r, struct draft *d, const char *key, const char *text)
{
	struct geometry_panel *p = &d->panel;
	const struct {
		const char *key;
		double *value;
		double min, max;
		unsigned int given;
	} numbers[] = {
		{"min_fs", &d->min_fs, 0, GEOMETRY_SIDE_MAX - 1, GIVEN_MIN_FS},
		{"max_fs", &d->max_fs, 0, GEOMETRY_SIDE_MAX - 1, GIVEN_MAX_FS},
		{"min_ss", &d->min_ss, 0, GEOMETRY_SIDE_MAX - 1, GIVEN_MIN_SS},
		{"max_ss", &d->max_ss, 0, GEOMETRY_SIDE_MAX - 1, GIVEN_MAX_SS},
		{"corner_x", &p->corner_x, -GEOMETRY_LENGTH_MAX, GEOMETRY_LENGTH_MAX,
			GIVEN_CORNER_X},
		{"corner_y", &p->corner_y, -GEOMETRY_LENGTH_MAX, GEOMETRY_LENGTH_MAX,
			GIVEN_CORNER_Y},
		{"res", &d->res, 1, 1e9, GIVEN_RES},
		{"coffset", &p->coffset_metres, -1e3, 1e3, 0},
		{"max_adu", &p->max_adu, 0, 1e30, 0},
		{"mask_edge_pixels", &d->edge, 0, GEOMETRY_SIDE_MAX, 0},
		{"adu_per_photon", &d->adu, 1e-9, 1e9, GIVEN_ADU},
		{"adu_per_eV", &d->adu, 1e-12, 1e9, GIVEN_ADU},
	};
	double step[3];
	int ret;

	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(key, numbers[i].key) != 0)
			continue;
		d->given |= numbers[i].given;
		if (numbers[i].given == GIVEN_ADU)
			d->adu_per_ev = strcmp(key, "adu_per_eV") == 0;
		return read_number(
			r, d, key, text, numbers[i].min, numbers[i].max, numbers[i].value);
	}
	if (strcmp(key, "fs") == 0 || strcmp(key, "ss") == 0) {
		ret = read_direction(r, d, key, text, step);
		if (ret == 0 && key[0] == 'f') {
			p->fs_x = step[0];
			p->fs_y = step[1];
			p->fs_z = step[2];
			d->given |= GIVEN_FS;
		} else if (ret == 0) {
			p->ss_x = step[0];
			p->ss_y = step[1];
			p->ss_z = step[2];
			d->given |= GIVEN_SS;
		}
		return ret;
	}
	if (strcmp(key, "no_index") == 0)
		return read_flag(r, d, key, text, &p->unused);
	if (strcmp(key, "data") == 0) {
		if (strlen(text) >= sizeof(d->data))
			return refuse(r, r->line, name_of(r, d),
				"data: the path has %zu bytes, at most %d", strlen(text),
				PATH_LEN - 1);
		strcpy(d->data, text);
		return 0;
	}
	if (strncmp(key, "dim", 3) == 0)
		return read_dim(r, d, key, text);
	if (is_ignored(key))
		return 0;
	if (strcmp(key, "clen") == 0)
		return refuse(r, r->line, name_of(r, d),
			"clen: is the same for all panels in CrystFEL 0.12; give it once without a "
			"panel, and the difference as coffset");
	return refuse(r, r->line, name_of(r, d),
		"%.64s: is no key of CrystFEL 0.12 that is supported; correct or remove it", key);
}

static int
read_global(struct reader *r, const char *key, char *text)
{
	int ret;

	if (strcmp(key, "clen") == 0) {
		r->has_distance = true;
		ret = read_length(r, key, text, GEOMETRY_DISTANCE_MIN, GEOMETRY_DISTANCE_MAX,
			&r->g->distance_metres);
		if (ret == 1)
			r->g->distance_metres = 0;
		return ret == 1 ? 0 : ret;
	}
	if (strcmp(key, "photon_energy") == 0 || strcmp(key, "wavelength") == 0)
		return read_energy(r, key, text);
	if (strcmp(key, "detector_shift_x") == 0 || strcmp(key, "detector_shift_y") == 0)
		return read_shift(r, key, text);
	if (strcmp(key, "electron_voltage") == 0)
		return refuse(r, r->line, NULL,
			"electron_voltage: expected photons; give "
			"photon_energy or wavelength");
	/* groups are used for refinement only */
	if (strncmp(key, "rigid_group", 11) == 0 || strncmp(key, "group_", 6) == 0)
		return 0;
	if (!is_ignored(key))
		r->unused_line = r->line;
	return read_panel_key(r, &r->defaults, key, text);
}

/* Find the panel of a key; a new name is a new panel with the values given so far. */
static int
find_panel(struct reader *r, const char *name, struct draft **d)
{
	struct geometry *g = r->g;

	for (uint32_t i = 0; i < g->nb_panels; i++) {
		*d = &r->draft[i];
		if (strcmp((*d)->panel.name, name) == 0)
			return 0;
	}
	if (g->nb_panels == GEOMETRY_PANELS_MAX)
		return refuse(r, r->line, name, "more than %d panels", GEOMETRY_PANELS_MAX);
	*d = &r->draft[g->nb_panels++];
	**d = r->defaults;
	strcpy((*d)->panel.name, name);
	(*d)->line = r->line;
	r->unused_line = 0;
	return 0;
}

static int
read_bad_key(struct reader *r, const char *name, const char *key, const char *text)
{
	static const struct {
		const char *key;
		bool in_panel;
		unsigned int index;
	} limits[] = {{"min_x", false, 0}, {"max_x", false, 1}, {"min_y", false, 2},
		{"max_y", false, 3}, {"min_fs", true, 0}, {"max_fs", true, 1}, {"min_ss", true, 2},
		{"max_ss", true, 3}};
	struct geometry *g = r->g;
	struct bad_draft *b = NULL;
	double value;

	for (uint32_t i = 0; i < g->nb_bad && b == NULL; i++)
		if (strcmp(r->bad[i].bad.name, name) == 0)
			b = &r->bad[i];
	if (b == NULL) {
		if (g->nb_bad == GEOMETRY_BAD_MAX)
			return refuse(r, r->line, NULL, "region %s: more than %d bad regions", name,
				GEOMETRY_BAD_MAX);
		b = &r->bad[g->nb_bad++];
		strcpy(b->bad.name, name);
		b->line = r->line;
	}
	if (strcmp(key, "panel") == 0) {
		if (strlen(text) >= sizeof(b->panel))
			return refuse(r, r->line, NULL,
				"region %s: panel: the name has %zu bytes, "
				"at most %d",
				name, strlen(text), GEOMETRY_NAME_LEN - 1);
		strcpy(b->panel, text);
		return 0;
	}
	for (unsigned int i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		double *const to[] = {&b->bad.min_x, &b->bad.max_x, &b->bad.min_y, &b->bad.max_y};

		if (strcmp(key, limits[i].key) != 0)
			continue;
		if (b->given != 0 && b->bad.in_panel != limits[i].in_panel)
			return refuse(r, r->line, NULL,
				"region %s: %s: expected either x and y, or fs and ss", name, key);
		if (!parse_number(text, &value))
			return refuse(r, r->line, NULL, "region %s: %s = %.64s: expected a number",
				name, key, text);
		if (limits[i].in_panel && value != floor(value))
			return refuse(r, r->line, NULL,
				"region %s: %s = %.64s: expected a whole number", name, key, text);
		b->bad.in_panel = limits[i].in_panel;
		b->given |= 1u << limits[i].index;
		*to[limits[i].index] = value;
		return 0;
	}
	return refuse(r, r->line, NULL,
		"region %s: %.64s: expected min_x ... max_y, min_fs ... max_ss or panel", name,
		key);
}

static int
read_line(struct reader *r, char *line)
{
	const unsigned char *other;
	struct draft *d;
	char *key, *text, *slash;
	int ret;

	line[strcspn(line, ";")] = '\0';
	other = lines_find_other(line);
	if (other != NULL)
		return refuse(r, r->line, NULL,
			"byte %zu is 0x%02x, which is not printable ASCII; remove it",
			(size_t)((const char *)other - line) + 1, *other);
	line = lines_strip(line);
	if (line[0] == '\0')
		return 0;
	text = strchr(line, '=');
	if (text == NULL || text == line)
		return refuse(r, r->line, NULL,
			"expected key = value, PANEL/key = value, or a "
			"comment that starts with ;");
	*text++ = '\0';
	text = lines_strip(text);
	line = lines_strip(line);
	slash = strchr(line, '/');
	if (slash == NULL)
		return read_global(r, line, text);
	*slash = '\0';
	key = slash + 1;
	if (line[0] == '\0' || strlen(line) >= GEOMETRY_NAME_LEN)
		return refuse(r, r->line, NULL,
			"the name of a panel has %zu bytes, expected 1 ... "
			"%d",
			strlen(line), GEOMETRY_NAME_LEN - 1);
	/* lists of panels have commas */
	if (strpbrk(line, " \t,") != NULL)
		return refuse(r, r->line, NULL,
			"'%s': the name of a panel has a blank or a comma; remove it", line);
	if (strncmp(line, "bad", 3) == 0)
		return read_bad_key(r, line, key, text);
	ret = find_panel(r, line, &d);
	return ret == 0 ? read_panel_key(r, d, key, text) : ret;
}

/* Set where the panel is in the raster. */
static int
place_panel(struct reader *r, struct draft *d)
{
	const struct geometry_raster *raster = r->raster;
	struct geometry_panel *p = &d->panel;
	int fs = -1, ss = -1, index = -1;
	double rows = 0;

	for (int i = 0; i < DIMS_MAX; i++) {
		int *at = &index;

		if (d->dim[i] == DIM_NONE)
			continue;
		if (i > 0 && d->dim[i - 1] == DIM_NONE)
			return refuse(r, d->line, p->name, "dim%d is missing", i - 1);
		if (d->dim[i] == DIM_FRAME)
			continue;
		if (d->dim[i] < 0)
			at = d->dim[i] == DIM_FS ? &fs : &ss;
		if (*at >= 0)
			return refuse(r, d->line, p->name,
				"dim%d and dim%d are both %s, expected at most one", *at, i,
				at == &index	    ? "indices"
					: at == &fs ? "fs"
						    : "ss");
		*at = i;
	}
	if (fs < 0 || ss < 0 || fs < ss)
		return refuse(r, d->line, p->name,
			"dim: expected a dimension ss, and after it a dimension fs");
	if (index >= 0 && (raster == NULL || raster->module_rows == 0)) {
		if (d->dim[index] > 0)
			return refuse(r, d->line, p->name,
				"dim%d = %d: an index of modules is not supported without a "
				"detector; give rows of one stack of modules in min_ss and max_ss",
				index, d->dim[index]);
	} else if (index >= 0) {
		rows = (double)d->dim[index] * raster->module_rows;
		if (d->max_ss >= raster->module_rows)
			return refuse(r, d->line, p->name,
				"max_ss = %g: expected a row of the module, below %u", d->max_ss,
				raster->module_rows);
	}
	if (d->min_fs != floor(d->min_fs) || d->max_fs != floor(d->max_fs) ||
		d->min_ss != floor(d->min_ss) || d->max_ss != floor(d->max_ss) ||
		d->max_fs < d->min_fs || d->max_ss < d->min_ss)
		return refuse(r, d->line, p->name,
			"fs %g ... %g, ss %g ... %g: expected whole numbers, first and last pixel",
			d->min_fs, d->max_fs, d->min_ss, d->max_ss);
	if (raster != NULL && (d->max_fs >= raster->cols || d->max_ss + rows >= raster->rows))
		return refuse(r, d->line, p->name,
			"columns %g ... %g and rows %g ... %g are not in the raster of %u rows x "
			"%u columns; check [detector] modules, and that the file describes modules "
			"without pixels in their gaps",
			d->min_fs, d->max_fs, d->min_ss + rows, d->max_ss + rows, raster->rows,
			raster->cols);
	if (d->max_ss + rows >= GEOMETRY_SIDE_MAX)
		return refuse(r, d->line, p->name, "max_ss = %g: expected less than %u", d->max_ss,
			GEOMETRY_SIDE_MAX);
	p->fs_min = (uint32_t)d->min_fs;
	p->ss_min = (uint32_t)(d->min_ss + rows);
	p->width = (uint32_t)(d->max_fs - d->min_fs) + 1;
	p->height = (uint32_t)(d->max_ss - d->min_ss) + 1;
	return 0;
}

static int
check_given(struct reader *r, const struct draft *d)
{
	static const struct {
		const char *key;
		unsigned int given;
	} needed[] = {{"min_fs", GIVEN_MIN_FS}, {"max_fs", GIVEN_MAX_FS}, {"min_ss", GIVEN_MIN_SS},
		{"max_ss", GIVEN_MAX_SS}, {"corner_x", GIVEN_CORNER_X},
		{"corner_y", GIVEN_CORNER_Y}, {"fs", GIVEN_FS}, {"ss", GIVEN_SS},
		{"res", GIVEN_RES}, {"adu_per_photon", GIVEN_ADU}};

	for (unsigned int i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if ((d->given & needed[i].given) == 0)
			return refuse(r, d->line, d->panel.name, "%s is missing", needed[i].key);
	return 0;
}

/* Return true if two directions are parallel. */
static bool
is_degenerate(const struct geometry_panel *p)
{
	const double x = p->fs_y * p->ss_z - p->fs_z * p->ss_y;
	const double y = p->fs_z * p->ss_x - p->fs_x * p->ss_z;
	const double z = p->fs_x * p->ss_y - p->fs_y * p->ss_x;

	return sqrt(x * x + y * y + z * z) < 1e-3;
}

/* Return the distance from the sample to the plane of a panel, pixels. */
static double
plane_distance(const struct geometry_panel *p, double z)
{
	const double x = p->fs_y * p->ss_z - p->fs_z * p->ss_y;
	const double y = p->fs_z * p->ss_x - p->fs_x * p->ss_z;
	const double normal_z = p->fs_x * p->ss_y - p->fs_y * p->ss_x;

	return fabs(x * p->corner_x + y * p->corner_y + normal_z * z) /
		sqrt(x * x + y * y + normal_z * normal_z);
}

static bool
overlap(const struct geometry_panel *a, const struct geometry_panel *b)
{
	return a->fs_min < b->fs_min + b->width && b->fs_min < a->fs_min + a->width &&
		a->ss_min < b->ss_min + b->height && b->ss_min < a->ss_min + a->height;
}

/* Complete a panel. */
static int
settle_panel(struct reader *r, uint32_t index)
{
	struct draft *d = &r->draft[index];
	const struct draft *first = &r->draft[0];
	struct geometry_panel *p = &d->panel;
	const double distance = r->g->distance_metres;
	double adu = d->adu;
	int ret = check_given(r, d);

	if (ret == 0)
		ret = place_panel(r, d);
	if (ret != 0)
		return ret;
	if (is_degenerate(p))
		return refuse(r, d->line, p->name, "fs and ss have the same direction");
	if (d->res != first->res)
		return refuse(r, d->line, p->name,
			"res = %g, and %g for panel %s: panels of different pixels are not "
			"supported",
			d->res, first->res, first->panel.name);
	if (strcmp(d->data, first->data) != 0)
		return refuse(r, d->line, p->name,
			"data = %.64s, and %.64s for panel %s: panels in different arrays are not "
			"supported",
			d->data, first->data, first->panel.name);
	for (uint32_t i = 0; i < index; i++)
		if (overlap(p, &r->draft[i].panel))
			return refuse(r, d->line, p->name,
				"has pixels of panel %s; every pixel is in at most one panel",
				r->draft[i].panel.name);
	if (d->adu_per_ev && isfinite(p->max_adu) && r->g->energy_ev == 0)
		return refuse(r, d->line, p->name,
			"max_adu with adu_per_eV: the photon energy is not in the file; give "
			"adu_per_photon");
	if (d->adu_per_ev)
		adu *= r->g->energy_ev;
	if (isfinite(p->max_adu))
		p->max_adu /= adu;
	p->corner_x += r->shift_x * d->res;
	p->corner_y += r->shift_y * d->res;
	if (fabs(p->corner_x) > GEOMETRY_LENGTH_MAX || fabs(p->corner_y) > GEOMETRY_LENGTH_MAX)
		return refuse(r, d->line, p->name,
			"with detector_shift, its corner is %g, %g, expected at most %g pixels",
			p->corner_x, p->corner_y, GEOMETRY_LENGTH_MAX);
	if (distance > 0 &&
		plane_distance(p, (distance + p->coffset_metres) * d->res) <
			GEOMETRY_DISTANCE_MIN * d->res)
		return refuse(r, d->line, p->name,
			"the sample is in its plane, with clen + coffset = %g m; correct them, or "
			"fs and ss",
			distance + p->coffset_metres);
	if (d->edge != floor(d->edge))
		return refuse(r, d->line, p->name, "mask_edge_pixels = %g: expected a whole number",
			d->edge);
	p->edge = (uint32_t)d->edge;
	r->g->panel[index] = *p;
	return 0;
}

static int
settle_bad(struct reader *r, uint32_t index)
{
	struct bad_draft *b = &r->bad[index];
	struct geometry *g = r->g;
	const struct draft *d;
	uint32_t i = 0;

	if (b->given != 0xF)
		return refuse(r, b->line, NULL,
			"region %s: expected four limits, min and max of x and y or of fs and ss",
			b->bad.name);
	if (b->bad.max_x < b->bad.min_x || b->bad.max_y < b->bad.min_y)
		return refuse(
			r, b->line, NULL, "region %s: a minimum is above its maximum", b->bad.name);
	if (!b->bad.in_panel && b->panel[0] != '\0')
		return refuse(r, b->line, NULL,
			"region %s: panel = %s, but a region in x and y is in all panels; remove "
			"it, or give fs and ss",
			b->bad.name, b->panel);
	if (b->bad.in_panel) {
		if (b->panel[0] == '\0' && g->nb_panels > 1)
			return refuse(r, b->line, NULL, "region %s: panel is missing", b->bad.name);
		if (b->panel[0] != '\0')
			while (i < g->nb_panels && strcmp(g->panel[i].name, b->panel) != 0)
				i++;
		if (i == g->nb_panels)
			return refuse(r, b->line, NULL, "region %s: there is no panel %s",
				b->bad.name, b->panel);
		d = &r->draft[i];
		if (b->bad.min_x < d->min_fs || b->bad.max_x > d->max_fs ||
			b->bad.min_y < d->min_ss || b->bad.max_y > d->max_ss)
			return refuse(r, b->line, NULL,
				"region %s: is not in panel %s, which has fs %g ... %g and ss %g "
				"... %g",
				b->bad.name, d->panel.name, d->min_fs, d->max_fs, d->min_ss,
				d->max_ss);
		b->bad.min_y += d->panel.ss_min - d->min_ss;
		b->bad.max_y += d->panel.ss_min - d->min_ss;
		b->bad.panel = i;
	}
	g->bad[index] = b->bad;
	return 0;
}

static int
settle(struct reader *r)
{
	struct geometry *g = r->g;
	int ret = 0;

	if (g->nb_panels == 0)
		return refuse(r, r->line > 0 ? r->line : 1, NULL, "the file has no panel");
	if (!r->has_distance)
		return refuse(r, r->line, NULL, "clen is missing");
	if (!r->has_energy)
		return refuse(r, r->line, NULL, "photon_energy or wavelength is missing");
	if (r->unused_line != 0)
		return refuse(r, r->unused_line, NULL,
			"has no effect: it applies to panels that "
			"are named later, and there is none");
	for (uint32_t i = 0; i < g->nb_panels && ret == 0; i++)
		ret = settle_panel(r, i);
	for (uint32_t i = 0; i < g->nb_bad && ret == 0; i++)
		ret = settle_bad(r, i);
	if (ret != 0)
		return ret;
	g->pixel_metres = 1 / r->draft[0].res;
	if (r->raster != NULL) {
		g->rows = r->raster->rows;
		g->cols = r->raster->cols;
		return 0;
	}
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		const struct geometry_panel *p = &g->panel[i];

		g->rows = p->ss_min + p->height > g->rows ? p->ss_min + p->height : g->rows;
		g->cols = p->fs_min + p->width > g->cols ? p->fs_min + p->width : g->cols;
	}
	return 0;
}

static int
read_geometry(struct geometry *g, const char *text, size_t size, const char *name, bool has_lines,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN])
{
	struct reader r = {
		.g = g, .raster = raster, .name = name, .has_lines = has_lines, .message = message};
	char *copy = strndup(text, size), *rest = copy, *line;
	int ret = 0;

	message[0] = '\0';
	memset(g, 0, sizeof(*g));
	r.defaults.panel.max_adu = INFINITY;
	for (int i = 0; i < DIMS_MAX; i++)
		r.defaults.dim[i] = DIM_NONE;
	r.defaults.dim[0] = DIM_SS;
	r.defaults.dim[1] = DIM_FS;
	r.draft = calloc(GEOMETRY_PANELS_MAX, sizeof(*r.draft));
	r.bad = calloc(GEOMETRY_BAD_MAX, sizeof(*r.bad));
	if (copy == NULL || r.draft == NULL || r.bad == NULL) {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "%.256s: out of memory", name);
		ret = -ENOMEM;
		goto out;
	}
	if (strlen(copy) != size)
		ret = refuse(&r, 1, NULL, "has a zero byte, expected text");
	while (ret == 0 && (line = lines_next(&rest)) != NULL) {
		r.line++;
		ret = read_line(&r, line);
	}
	if (ret == 0)
		ret = settle(&r);
out:
	free(copy);
	free(r.draft);
	free(r.bad);
	return ret;
}

int
crystfel_read(struct geometry *g, const char *text, size_t size, const char *name,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN])
{
	return read_geometry(g, text, size, name, true, raster, message);
}

int
crystfel_check(struct geometry *g, const char *name, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN])
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int ret = f != NULL ? crystfel_write(g, NULL, f) : -ENOMEM;

	if (f != NULL && fclose(f) != 0)
		ret = -ENOMEM;
	if (ret == 0)
		ret = read_geometry(g, text, size, name, false, raster, message);
	else
		snprintf(message, GEOMETRY_MESSAGE_LEN, "%.256s: out of memory", name);
	free(text);
	return ret;
}
