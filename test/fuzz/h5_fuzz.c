/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HDF5 files that braggline-export reads: geometry of NeXus files, and its own data files. An input
 * is a list of changes of a correct small file: objects are removed, replaced by others of any
 * type, shape and storage, or linked to each other; attributes get other types and values. HDF5
 * writes the changes, so what it reads is valid for the library, and only this project's code is
 * examined.
 * Bytes that HDF5 cannot read are tested by test/smoke/export_test.py: child_process.h.
 */

#include <math.h>
/* its static functions answer questions about a file */
#include "data_file.c"
#include "geometry/crystfel.h"
#include "modules.h"
#include "nxmx_geometry.h"
#include "seed_corpus.h"

#define PATHS_MAX 128
#define PATH_LEN  96
#define STEP	  5 /* bytes of a change */
#define STEPS_MAX 24
#define IMAGES	  3

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

/* A correct file, and the paths of its objects. */
struct template
{
	char path[600];
	uint8_t *data;
	size_t size;
	char object[PATHS_MAX][PATH_LEN];
	unsigned int nb;
};

static struct template templates[2]; /* geometry; data file */
static struct geometry geometry, result;
static char changed[600];
static char run_id[] = "0123456789abcdef";

static const char *const texts[] = {"", ".", "m", "mm", "deg", "rad", "rotation", "translation",
	"NXentry", "NXinstrument", "NXdetector", "NXdetector_module", "NXbeam", "angstrom", "nm",
	"/entry/instrument/detector/transformations/det_z", "det_z", "/", "..", "/entry/", "%s%n",
	"/absent/axis", "module_offset", "\xff\xfe", run_id};

static const char *const names[] = {"NX_class", "units", "vector", "offset", "offset_units",
	"depends_on", "transformation_type", "run", "other"};

static const double values[] = {0, 1, -1, 0.1, 75e-6, 1e-300, 1e300, -1e300, 512, 2147483648.0, 3,
	9223372036854775808.0, NAN, INFINITY, -INFINITY, 65536};

#define NB(array) (sizeof(array) / sizeof((array)[0]))

static hid_t
text_type_of(size_t size)
{
	const hid_t type = H5Tcopy(H5T_C_S1);

	WANT(type >= 0 && H5Tset_size(type, size) >= 0);
	return type;
}

/* A type by number; the caller closes it. */
static hid_t
type_of(unsigned int number)
{
	hid_t type, base;

	switch (number % 10) {
	case 0:
		return H5Tcopy(H5T_IEEE_F64BE);
	case 1:
		return H5Tcopy(H5T_STD_U8LE);
	case 2:
		return H5Tcopy(H5T_STD_I64LE);
	case 3:
		return text_type_of(H5T_VARIABLE);
	case 4:
		return text_type_of(3);
	case 5:
		return text_type_of(100000);
	case 6:
		type = H5Tcreate(H5T_COMPOUND, 16);
		WANT(H5Tinsert(type, "a", 0, H5T_STD_I64LE) >= 0);
		return type;
	case 7:
		return H5Tarray_create2(H5T_IEEE_F64LE, 1, (const hsize_t[]){3});
	case 8:
		return H5Tvlen_create(H5T_STD_U16LE);
	default:
		base = H5Tenum_create(H5T_STD_I32LE);
		WANT(H5Tenum_insert(base, "one", (const int32_t[]){1}) >= 0);
		return base;
	}
}

static hid_t
space_of(unsigned int number)
{
	static const hsize_t dims[][3] = {
		{1}, {2}, {3}, {3, 1, 1}, {1, 2}, {0}, {1u << 30}, {UINT64_C(1) << 40, 2}};
	static const int ranks[] = {1, 1, 1, 3, 2, 1, 1, 2};
	const unsigned int k = number % 10;

	if (k == 8)
		return H5Screate(H5S_SCALAR);
	if (k == 9)
		return H5Screate(H5S_NULL);
	return H5Screate_simple(ranks[k], dims[k], NULL);
}

/* Creates an attribute, of a text, of numbers, or of any type without a value. */
static void
change_attribute(hid_t file, const char *object, const uint8_t *step)
{
	const char *name = names[step[2] % NB(names)], *text = texts[step[4] % NB(texts)];
	const hid_t at = H5Oopen(file, object, H5P_DEFAULT);
	double v[3] = {values[step[4] % NB(values)], values[step[4] / 16], values[step[4] % 3]};
	const hsize_t three = 3;
	hid_t type, space, attr;

	if (at < 0)
		return;
	if (H5Aexists(at, name) > 0)
		(void)H5Adelete(at, name);
	if (step[3] == 0) {
		type = text_type_of(strlen(text) + 1);
		space = H5Screate(H5S_SCALAR);
	} else if (step[3] == 1) {
		type = H5Tcopy(H5T_NATIVE_DOUBLE);
		space = H5Screate_simple(1, &three, NULL);
	} else {
		type = type_of(step[3]);
		/* an attribute is stored whole */
		space = space_of(step[4] % 6 + (step[4] % 6 > 4) * 3);
	}
	attr = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	if (attr >= 0 && step[3] < 2)
		(void)H5Awrite(attr, type, step[3] == 0 ? (const void *)text : v);
	h5_release(attr);
	h5_release(space);
	h5_release(type);
	h5_release(at);
}

/* Properties of a dataset: how it is stored. */
static hid_t
storage_of(unsigned int number, hid_t space)
{
	const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
	hsize_t chunk[3] = {number % 2 == 0 ? 1 : 1u << 28, 1, 1};
	const int rank = H5Sget_simple_extent_ndims(space);

	WANT(create >= 0);
	if (number % 5 == 1 && rank > 0) {
		(void)H5Pset_chunk(create, rank, chunk);
		(void)H5Pset_deflate(create, 1);
	} else if (number % 5 == 2) {
		(void)H5Pset_external(create, "/dev/zero", 0, 64);
	} else if (number % 5 == 3 && rank > 0) {
		(void)H5Pset_virtual(create, space, "/dev/zero", "x", space);
	} else if (number % 5 == 4) {
		(void)H5Pset_layout(create, H5D_COMPACT);
	}
	return create;
}

/* Replaces an object by a dataset; its attributes are those of a correct axis, or none. */
static void
change_dataset(hid_t file, const char *object, const uint8_t *step)
{
	const hid_t type = type_of(step[2]), space = space_of(step[3]);
	const hid_t create = storage_of(step[4] % 32, space);
	const double value = values[step[4] % NB(values)];
	hid_t set, attr, old = H5Oopen(file, object, H5P_DEFAULT);
	int64_t whole[2] = {step[4] % 9, step[4] / 9};

	(void)H5Ldelete(file, object, H5P_DEFAULT);
	set = H5Dcreate2(file, object, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
	if (set >= 0 && H5Sget_simple_extent_npoints(space) == 1)
		(void)H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value);
	else if (set >= 0 && H5Sget_simple_extent_npoints(space) == 2)
		(void)H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, whole);
	/* with the unit of an axis it is read further */
	for (unsigned int i = 1; set >= 0 && old >= 0 && i < NB(names); i++) {
		char text[128] = "";
		hid_t was, one;

		if (step[4] < 128 || H5Aexists(old, names[i]) <= 0)
			continue;
		was = H5Aopen(old, names[i], H5P_DEFAULT);
		one = H5Aget_space(was);
		attr = H5Acreate2(set, names[i], H5Aget_type(was), one, H5P_DEFAULT, H5P_DEFAULT);
		if (attr >= 0 && H5Aget_storage_size(was) <= sizeof(text) &&
			H5Aread(was, H5Aget_type(was), text) >= 0)
			(void)H5Awrite(attr, H5Aget_type(was), text);
		h5_release(attr);
		h5_release(one);
		h5_release(was);
	}
	h5_release(old);
	h5_release(set);
	h5_release(create);
	h5_release(space);
	h5_release(type);
}

static void
change(hid_t file, const struct template *t, const uint8_t *step)
{
	const char *object = t->object[step[1] % t->nb], *other = t->object[step[2] % t->nb];
	char copy[PATH_LEN + 8];

	switch (step[0] % 8) {
	case 0:
		(void)H5Ldelete(file, object, H5P_DEFAULT);
		break;
	case 1:
		(void)H5Ldelete(file, object, H5P_DEFAULT);
		(void)H5Lcreate_soft(step[3] == 0 ? texts[step[2] % NB(texts)] : other, file,
			object, H5P_DEFAULT, H5P_DEFAULT);
		break;
	case 2:
		/* also cycles */
		(void)H5Ldelete(file, object, H5P_DEFAULT);
		(void)H5Lcreate_hard(file, other, file, object, H5P_DEFAULT, H5P_DEFAULT);
		break;
	case 3:
		(void)H5Ldelete(file, object, H5P_DEFAULT);
		(void)H5Lcreate_external(
			"/dev/zero", other, file, object, H5P_DEFAULT, H5P_DEFAULT);
		break;
	case 4:
		snprintf(copy, sizeof(copy), "%s_%02x", object, step[3]);
		(void)H5Lcreate_hard(file, other, file, copy, H5P_DEFAULT, H5P_DEFAULT);
		break;
	case 5:
		change_dataset(file, object, step);
		break;
	default:
		change_attribute(file, object, step);
		break;
	}
}

static void
make_file(const struct template *t, const uint8_t *step, size_t nb)
{
	FILE *f = fopen(changed, "wb");
	hid_t file, access;

	WANT(f != NULL && fwrite(t->data, 1, t->size, f) == t->size && fclose(f) == 0);
	access = H5Pcreate(H5P_FILE_ACCESS);
	WANT(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0);
	file = H5Fopen(changed, H5F_ACC_RDWR, access);
	WANT(file >= 0);
	for (size_t i = 0; i < nb && i < STEPS_MAX; i++)
		change(file, t, step + i * STEP);
	WANT(H5Fclose(file) >= 0);
	h5_release(access);
}

static void
check_geometry(bool same)
{
	const struct geometry_raster raster = {.rows = 8, .cols = 8, .module_rows = 4};
	char message[GEOMETRY_MESSAGE_LEN];

	for (unsigned int i = 0; i < 2; i++) {
		int ret;

		memset(message, 'x', sizeof(message));
		ret = nxmx_geometry_read_here(&result, changed, i == 0 ? NULL : &raster, message);
		WANT(memchr(message, '\0', sizeof(message)) != NULL);
		WANT((ret == 0) == (message[0] == '\0'));
		WANT(!same || ret == 0);
		if (ret == 0)
			WANT(result.nb_panels >= 1 && result.nb_panels <= GEOMETRY_PANELS_MAX &&
				result.rows >= 1 && result.cols >= 1 && result.pixel_metres > 0);
		/* a file of this program says what it was made of */
		if (same)
			WANT(result.nb_panels == geometry.nb_panels &&
				fabs(result.energy_ev - geometry.energy_ev) < 1e-3);
	}
}

static struct export *
make_export(void)
{
	static struct arrow_read_batch batch;
	static struct scan_set set;
	static struct selection_image image[IMAGES];
	static struct export e;

	batch.incarnation = run_id;
	set.file[ARROW_IMAGES].reader.batches = &batch;
	for (unsigned int i = 0; i < IMAGES; i++)
		image[i].image.frame = 10 + i;
	e = (struct export){
		.run = {.set = &set, .nb_sets = 1, .rows = 4, .cols = 8}, .per_file = IMAGES};
	e.images.image = image;
	e.images.nb = IMAGES;
	return &e;
}

static void
check_data(bool same)
{
	struct file_check q = {.e = make_export(),
		.group = "/entry/data/data",
		.frames = "/entry/frames/frame",
		.nb = IMAGES};

	snprintf(q.path, sizeof(q.path), "%s", changed);
	count_images(&q);
	WANT(!same || q.images == IMAGES);
	check(&q);
	WANT(!same || q.wrong == NULL);
	q.group = "/entry/data";
	compare_frames(&q);
	WANT(q.images == 0 || !same);
}

/* Notes the paths of objects. */
static herr_t
note(hid_t file, const char *name, const H5O_info_t *info, void *arg)
{
	struct template *t = arg;

	if (name[0] != '.' && t->nb < PATHS_MAX && strlen(name) < PATH_LEN - 1)
		snprintf(t->object[t->nb++], PATH_LEN, "/%s", name);
	return 0;
}

static void
open_template(struct template *t)
{
	const hid_t file = H5Fopen(t->path, H5F_ACC_RDONLY, H5P_DEFAULT);
	FILE *f;

	WANT(file >= 0 &&
		H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, note, t, H5O_INFO_BASIC) >= 0);
	WANT(t->nb > 4 && H5Fclose(file) >= 0);
	f = fopen(t->path, "rb");
	WANT(f != NULL && fseek(f, 0, SEEK_END) == 0);
	t->size = ftell(f);
	t->data = malloc(t->size);
	rewind(f);
	WANT(t->data != NULL && fread(t->data, 1, t->size, f) == t->size && fclose(f) == 0);
	unlink(t->path);
}

static void
write_geometry(const char *path)
{
	static const char text[] =
		"photon_energy = 12400\nclen = 0.1\nres = 13333.333\nadu_per_photon = 1\n"
		"data = /entry/data/data\ndim0 = %\ndim1 = ss\ndim2 = fs\n"
		"a/min_fs = 0\na/max_fs = 7\na/min_ss = 0\na/max_ss = 3\na/corner_x = -4\n"
		"a/corner_y = 5\na/fs = x\na/ss = -y\n"
		"b/min_fs = 0\nb/max_fs = 7\nb/min_ss = 4\nb/max_ss = 7\nb/corner_x = -4\n"
		"b/corner_y = -1\nb/fs = x\nb/ss = -y\n";
	const struct geometry_raster raster = {.rows = 8, .cols = 8, .module_rows = 4};
	char message[GEOMETRY_MESSAGE_LEN];
	hid_t entry, instrument, beam, detector;
	struct h5 h;

	if (crystfel_read(&geometry, text, strlen(text), "seed", &raster, message) != 0) {
		fprintf(stderr, "%s\n", message);
		abort();
	}
	h5_create(&h, path);
	entry = h5_group(&h, h.file, "entry", "NXentry");
	instrument = h5_group(&h, entry, "instrument", "NXinstrument");
	beam = h5_group(&h, instrument, "beam", "NXbeam");
	h5_f64(&h, beam, "incident_wavelength", geometry_wavelength(&geometry), "angstrom");
	detector = h5_group(&h, instrument, "detector", "NXdetector");
	h5_f64(&h, detector, "distance", geometry.distance_metres, "m");
	modules_put(&h, detector, &geometry);
	h5_release(detector);
	h5_release(beam);
	h5_release(instrument);
	h5_release(entry);
	WANT(h5_close(&h) == 0);
}

static void
write_data(const char *path)
{
	struct export *e = make_export();
	hid_t entry, data, set;
	struct h5 h;

	h5_create(&h, path);
	entry = h5_group(&h, h.file, "entry", "NXentry");
	data = h5_group(&h, entry, "data", "NXdata");
	data_file_put_frames(&h, entry, e, 0, IMAGES);
	set = data_file_create_images(&h, data, e, IMAGES, IMAGES);
	h5_attr_text(&h, set, "run", run_id);
	h5_release(set);
	h5_release(data);
	h5_release(entry);
	WANT(h5_close(&h) == 0);
}

static void
remove_changed(void)
{
	/* libFuzzer forks for some of its modes */
	if (getpid() == seed_owner)
		unlink(changed);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const uint8_t begin[][1] = {{0}, {1}};
	uint8_t seed[1 + 8 * STEP];

	seed_begin(argc, argv);
	for (unsigned int i = 0; i < NB(templates); i++)
		snprintf(templates[i].path, sizeof(templates[i].path), "%s/.%u.h5", seed_dir, i);
	snprintf(changed, sizeof(changed), "%s.h5", seed_dir);
	atexit(remove_changed);
	write_geometry(templates[0].path);
	write_data(templates[1].path);
	for (unsigned int i = 0; i < NB(templates); i++) {
		char name[] = "correct0";

		open_template(&templates[i]);
		name[7] += i;
		seed_add(name, begin[i], 1);
	}
	/* one change of each kind of each object */
	for (unsigned int i = 0; i < NB(templates); i++)
		for (unsigned int k = 0; k < templates[i].nb; k++)
			for (unsigned int op = 0; op < 8; op++) {
				char name[32];

				seed[0] = i;
				seed[1] = op;
				seed[2] = k;
				seed[3] = k + op;
				seed[4] = op;
				seed[5] = 3 * k + op;
				snprintf(name, sizeof(name), "%u-%u-%u", i, k, op);
				seed_add(name, seed, 1 + STEP);
			}
	/* several changes */
	for (unsigned int n = 0; n < 32; n++) {
		char name[32];

		for (unsigned int i = 0; i < sizeof(seed); i++)
			seed[i] = (n * 2654435761u + i * 40503u) >> (i % 5 + 3);
		snprintf(name, sizeof(name), "many-%u", n);
		seed_add(name, seed, sizeof(seed));
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const unsigned int i = size > 0 ? data[0] % NB(templates) : 0;
	const size_t steps = size > 0 ? (size - 1) / STEP : 0;

	if (size == 0)
		return 0;
	make_file(&templates[i], data + 1, steps);
	if (i == 0)
		check_geometry(steps == 0);
	else
		check_data(steps == 0);
	return 0;
}
