/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests that files and folders which another user could have made are refused. As root, the test
 * also uses files of another user.
 */

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/xattr.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/direct_io.h"
#include "io/durable_file.h"
#include "io/own_file.h"

#define SOMEBODY 65534

static char root[] = "/tmp/braggline-own-file.XXXXXX";
static char name[PATH_MAX], other[PATH_MAX], message[PATH_MAX];

static void
put(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static off_t
size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static mode_t
mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode;
}

/* Remove the files of the test before. */
static int
begin(void **state)
{
	snprintf(name, sizeof(name), "%s/name", root);
	snprintf(other, sizeof(other), "%s/other", root);
	unlink(name);
	rmdir(name);
	unlink(other);
	return 0;
}

static void
test_open(void **state)
{
	int fd;

	umask(0);
	fd = own_file_open(AT_FDCWD, name, O_RDWR | O_CREAT | O_EXCL, OWN_FILE_MODE);
	assert_true(fd >= 0);
	/* io_uring takes O_NONBLOCK for "do not wait" */
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	assert_int_equal(mode_of(name), S_IFREG | 0644);
	assert_int_equal(symlink(name, other), 0);
	assert_int_equal(own_file_open(AT_FDCWD, other, O_RDONLY, 0), -ELOOP);
	assert_int_equal(own_file_open(AT_FDCWD, other, O_WRONLY | O_TRUNC, 0), -ELOOP);
	fd = own_file_open_named(other, O_RDONLY, 0);
	assert_true(fd >= 0);
	close(fd);
	unlink(name);
	/* the other end of the FIFO is not open */
	assert_int_equal(mkfifo(name, 0600), 0);
	assert_int_equal(own_file_open(AT_FDCWD, name, O_RDONLY, 0), -EMEDIUMTYPE);
	assert_int_equal(own_file_open(AT_FDCWD, name, O_WRONLY, 0), -EMEDIUMTYPE);
	assert_int_equal(own_file_open(AT_FDCWD, name, O_RDWR, 0), -EMEDIUMTYPE);
	assert_null(own_file_read(name));
	assert_int_equal(errno, EMEDIUMTYPE);
	assert_null(own_file_write(name));
	assert_int_equal(errno, EMEDIUMTYPE);
	assert_int_equal(own_file_open(AT_FDCWD, root, O_RDONLY, 0), -EISDIR);
	assert_int_equal(own_file_open_named("/dev/zero", O_RDONLY, 0), -EMEDIUMTYPE);
}

/* Opening a file for writing truncates it; the target of a link is not touched. */
static void
test_write(void **state)
{
	FILE *f;

	put(name, "text");
	assert_int_equal(symlink(name, other), 0);
	assert_null(own_file_write(other));
	assert_int_equal(errno, ELOOP);
	assert_int_equal(size_of(name), 4);
	f = own_file_write(name);
	assert_non_null(f);
	assert_int_equal(size_of(name), 0);
	fclose(f);
}

static void
test_check(void **state)
{
	int fd;

	put(name, "text");
	fd = open(name, O_RDONLY);
	assert_int_equal(own_file_check(fd, name, 077, message), 0);
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(own_file_check(fd, name, 022, message), 0);
	assert_int_equal(own_file_check(fd, name, 077, message), -EPERM);
	assert_non_null(strstr(message, "mode is 0644, other users may read or write it"));
	assert_int_equal(fchmod(fd, 0620), 0);
	assert_int_equal(own_file_check(fd, name, 022, message), -EPERM);
	assert_non_null(strstr(message, "chmod go-w"));
	assert_int_equal(fchmod(fd, 0600), 0);
	assert_int_equal(link(name, other), 0);
	assert_int_equal(own_file_check(fd, name, 077, message), -EPERM);
	assert_non_null(strstr(message, "2 hard links"));
	unlink(other);
	if (geteuid() == 0) {
		assert_int_equal(fchown(fd, SOMEBODY, SOMEBODY), 0);
		assert_int_equal(own_file_check(fd, name, 077, message), -EPERM);
		assert_non_null(strstr(message, "owner is user 65534; expected this user (0)"));
	}
	close(fd);
}

/* The modes that each kind of folder may have. */
static void
test_folder(void **state)
{
	static const struct {
		mode_t mode;
		int wanted[OWN_FOLDER_RUN + 1];
	} cases[] = {
		{0700, {0, 0, 0, 0}},
		{0750, {-EPERM, 0, 0, 0}},
		{0755, {-EPERM, 0, 0, 0}},
		{0775, {-EPERM, -EPERM, 0, 0}},
		{01775, {-EPERM, 0, 0, 0}},
		{0777, {-EPERM, -EPERM, -EPERM, -EPERM}},
		{01777, {-EPERM, 0, 0, -EPERM}},
	};
	unsigned int i, k;
	int fd;

	umask(0);
	for (k = OWN_FOLDER_PRIVATE; k <= OWN_FOLDER_RUN; k++) {
		assert_int_equal(own_folder_open(name, k, message), -ENOENT);
		fd = own_folder_make(name, k, message);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(mode_of(name), S_IFDIR | (k == OWN_FOLDER_PRIVATE ? 0700 : 0755));
		for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			assert_int_equal(chmod(name, cases[i].mode), 0);
			assert_int_equal(own_folder_check(name, k, message), cases[i].wanted[k]);
		}
		assert_int_equal(chmod(name, 0700), 0);
		/* the operator may name a link; the folders that we make ourselves are no links */
		assert_int_equal(symlink(name, other), 0);
		assert_int_equal(own_folder_check(other, k, message),
			k == OWN_FOLDER_PRIVATE || k == OWN_FOLDER_RUN ? -ENOTDIR : 0);
		unlink(other);
		if (geteuid() == 0) {
			assert_int_equal(chown(name, SOMEBODY, SOMEBODY), 0);
			fd = own_folder_make(name, k, message);
			assert_int_equal(fd, -EPERM);
		}
		rmdir(name);
		put(name, "not a folder");
		assert_int_equal(own_folder_check(name, k, message), -ENOTDIR);
		unlink(name);
	}
}

/* A user who can write to a folder above ours can replace ours: this is refused. */
static void
test_above(void **state)
{
	char between[PATH_MAX + 8], below[PATH_MAX + 16], made[PATH_MAX + 16];
	unsigned int k;

	umask(0);
	assert_int_equal(mkdir(name, 0755), 0);
	snprintf(between, sizeof(between), "%s/between", name);
	assert_int_equal(mkdir(between, 0755), 0);
	snprintf(below, sizeof(below), "%s/below", between);
	assert_int_equal(mkdir(below, 0700), 0);
	snprintf(made, sizeof(made), "%s/made", between);
	for (k = OWN_FOLDER_PRIVATE; k <= OWN_FOLDER_RUN; k++) {
		assert_int_equal(chmod(name, 0777), 0);
		assert_int_equal(own_folder_make(made, k, message), -EPERM);
		assert_int_equal(access(made, F_OK), -1);
		assert_int_equal(own_folder_check(below, k, message), -EPERM);
		assert_non_null(strstr(message, name));
		assert_non_null(strstr(message, "is 0777"));
		assert_int_equal(chmod(name, 01777), 0);
		assert_int_equal(own_folder_check(below, k, message), 0);
		assert_int_equal(chmod(name, 0755), 0);
		assert_int_equal(own_folder_check(below, k, message), 0);
		/* a group that may write is trusted: the owner chose it */
		assert_int_equal(chmod(name, 0775), 0);
		assert_int_equal(own_folder_check(below, k, message), 0);
		if (geteuid() != 0)
			continue;
		assert_int_equal(chown(name, SOMEBODY, SOMEBODY), 0);
		assert_int_equal(own_folder_check(below, k, message), -EPERM);
		assert_non_null(strstr(message, name));
		assert_non_null(strstr(message, "is user 65534"));
		assert_non_null(strstr(message, "this user (0) or root"));
		assert_int_equal(chown(name, 0, 0), 0);
	}
	assert_int_equal(rmdir(below), 0);
	assert_int_equal(rmdir(between), 0);
}

/* Links on the way to a folder: the folders above their targets count, and who made them. */
static void
test_links(void **state)
{
	char below[PATH_MAX + 8], way[PATH_MAX + 32], above[PATH_MAX];

	umask(0);
	assert_int_equal(mkdir(name, 0755), 0);
	snprintf(below, sizeof(below), "%s/below", name);
	assert_int_equal(mkdir(below, 0700), 0);
	/* relative to the folder of the link, and from the root */
	assert_int_equal(symlink("name", other), 0);
	snprintf(way, sizeof(way), "%s/./../other//below/", other);
	assert_int_equal(own_folder_check(way, OWN_FOLDER_RUN, message), 0);
	assert_int_equal(unlink(other), 0);
	assert_int_equal(symlink(below, other), 0);
	assert_int_equal(own_folder_check(other, OWN_FOLDER_DATA, message), 0);
	assert_int_equal(own_folder_check(other, OWN_FOLDER_RUN, message), -ENOTDIR);
	assert_non_null(getcwd(above, sizeof(above)));
	assert_int_equal(chdir(root), 0);
	assert_int_equal(own_folder_check("other", OWN_FOLDER_DATA, message), 0);
	assert_int_equal(own_folder_check(".", OWN_FOLDER_DATA, message), 0);
	assert_int_equal(own_folder_check("", OWN_FOLDER_DATA, message), -ENOENT);
	assert_int_equal(chdir(above), 0);
	assert_int_equal(chmod(name, 0777), 0);
	assert_int_equal(own_folder_check(other, OWN_FOLDER_DATA, message), -EPERM);
	assert_int_equal(chmod(name, 0755), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(name, SOMEBODY, SOMEBODY), 0);
		assert_int_equal(own_folder_check(other, OWN_FOLDER_DATA, message), -EPERM);
		assert_int_equal(chown(name, 0, 0), 0);
		/* the owner of a link in a sticky folder may replace it */
		assert_int_equal(lchown(other, SOMEBODY, SOMEBODY), 0);
		assert_int_equal(own_folder_check(other, OWN_FOLDER_DATA, message), -EPERM);
		assert_non_null(strstr(message, "owner of link other is user 65534"));
	}
	assert_int_equal(unlink(other), 0);
	assert_int_equal(symlink(other, other), 0);
	assert_int_equal(own_folder_check(other, OWN_FOLDER_DATA, message), -ELOOP);
	assert_int_equal(rmdir(below), 0);
}

/* Replacing a file does not write to an existing file or link at the temporary name. */
static void
test_results(void **state)
{
	const struct arrow_io_open how = {.path = name, .depth = 1, .mode = ARROW_IO_BUFFERED};
	const struct arrow_io_open old = {
		.path = name, .depth = 1, .mode = ARROW_IO_BUFFERED, .existing = true};
	char part[PATH_MAX + 8];
	void *handle;

	snprintf(part, sizeof(part), "%s.part", name);
	umask(0);
	put(other, "precious");
	assert_int_equal(symlink(other, part), 0);
	assert_int_equal(durable_file_replace(name, "new", 3), 0);
	assert_int_equal(link(other, part), 0);
	assert_int_equal(durable_file_replace(name, "newer", 5), 0);
	assert_int_equal(size_of(other), strlen("precious"));
	assert_int_equal(size_of(name), 5);
	assert_int_equal(mode_of(name), S_IFREG | 0644);
	unlink(name);
	assert_int_equal(symlink(other, part), 0);
	assert_int_equal(durable_file_create(name, "new", 3), -EEXIST);
	unlink(part);
	assert_int_equal(symlink(other, name), 0);
	assert_int_equal(direct_io.open(&handle, &how), -EEXIST);
	assert_int_equal(direct_io.open(&handle, &old), -ELOOP);
	assert_int_equal(size_of(other), strlen("precious"));
}

/* Entries of an ACL: permissions of the group, of a named user, of the mask, of others. */
struct acl {
	unsigned int group, user, mask, others;
};

/* @return -ENOTSUP: the file system has no ACLs */
static int
set_default_acl(const char *path, const struct acl *a)
{
	const struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entry[5];
	} acl = {.header = {htole32(POSIX_ACL_XATTR_VERSION)},
		.entry = {{htole16(ACL_USER_OBJ), htole16(7), ACL_UNDEFINED_ID},
			{htole16(ACL_USER), htole16(a->user), htole32(SOMEBODY)},
			{htole16(ACL_GROUP_OBJ), htole16(a->group), ACL_UNDEFINED_ID},
			{htole16(ACL_MASK), htole16(a->mask), ACL_UNDEFINED_ID},
			{htole16(ACL_OTHER), htole16(a->others), ACL_UNDEFINED_ID}}};

	return setxattr(path, XATTR_NAME_POSIX_ACL_DEFAULT, &acl, sizeof(acl), 0) < 0 ? -errno : 0;
}

/* Two files have the same mode and the same ACL. */
static void
expect_same(const char *a, const char *b)
{
	char acl[2][512];
	ssize_t size[2];

	assert_int_equal(mode_of(a) & 0777, mode_of(b) & 0777);
	size[0] = getxattr(a, XATTR_NAME_POSIX_ACL_ACCESS, acl[0], sizeof(acl[0]));
	size[1] = getxattr(b, XATTR_NAME_POSIX_ACL_ACCESS, acl[1], sizeof(acl[1]));
	assert_int_equal(size[0], size[1]);
	assert_true(size[0] > 0 && memcmp(acl[0], acl[1], size[0]) == 0);
}

/*
 * A default ACL of a directory gives nobody more than the modes of the files: results are as the
 * kernel creates them with OWN_FILE_MODE, and secrets have an empty mask.
 */
static void
test_default_acl(void **state)
{
	static const struct acl acls[] = {
		{7, 7, 7, 7}, {5, 7, 7, 0}, {0, 4, 4, 0}, {7, 7, 0, 4}, {4, 6, 2, 2}};
	char folder[PATH_MAX], path[5][PATH_MAX + 8];
	const struct arrow_io_open how = {.path = path[1], .depth = 1, .mode = ARROW_IO_BUFFERED};
	unsigned int i, k, mask;
	void *handle;
	int fd;

	snprintf(folder, sizeof(folder), "%s/folder", root);
	for (k = 0; k < 5; k++)
		snprintf(path[k], sizeof(path[k]), "%s/%u", folder, k);
	for (i = 0; i < 2 * sizeof(acls) / sizeof(acls[0]); i++) {
		umask(0);
		assert_int_equal(mkdir(folder, 0755), 0);
		mask = i % 2 ? 077 : 0;
		if (set_default_acl(folder, &acls[i / 2]) < 0) {
			rmdir(folder);
			skip();
		}
		umask(mask);
		close(open(path[0], O_WRONLY | O_CREAT, 0644));
		assert_int_equal(direct_io.open(&handle, &how), 0);
		assert_int_equal(direct_io.close(handle), 0);
		assert_int_equal(durable_file_replace(path[2], "new", 3), 0);
		fd = own_file_open(AT_FDCWD, path[3], O_WRONLY | O_CREAT | O_EXCL, OWN_SECRET_MODE);
		assert_true(fd >= 0);
		close(fd);
		fd = own_folder_make(path[4], OWN_FOLDER_RUN, message);
		assert_true(fd >= 0);
		close(fd);
		umask(0);
		expect_same(path[1], path[0]);
		expect_same(path[2], path[0]);
		assert_int_equal(mode_of(path[1]) & 0133, 0);
		assert_int_equal(mode_of(path[3]), S_IFREG | 0600);
		assert_int_equal(mode_of(path[4]) & 022, 0);
		for (k = 0; k < 4; k++)
			assert_int_equal(unlink(path[k]), 0);
		assert_int_equal(rmdir(path[4]), 0);
		assert_int_equal(rmdir(folder), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_open, begin),
		cmocka_unit_test_setup(test_write, begin),
		cmocka_unit_test_setup(test_check, begin),
		cmocka_unit_test_setup(test_folder, begin),
		cmocka_unit_test_setup(test_above, begin),
		cmocka_unit_test_setup(test_links, begin),
		cmocka_unit_test_setup(test_results, begin),
		cmocka_unit_test_setup(test_default_acl, begin),
	};
	int failed;

	if (mkdtemp(root) == NULL)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)begin(NULL);
	rmdir(root);
	return failed;
}
