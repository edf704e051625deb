/* Links between agents, by real sockets: every request and its answer, calls that are canceled, and
 * whatever the system refuses. */
#include "base/fault.h"
#include "base/rng.h"
#include "each_fault.h"
#include "seed.h"
#include "test_peers_world.h"
#include "times.h"

#define PIECES      4u
#define LAST_BYTES  5000u
#define IMAGE_BYTES ((PIECES - 1) * PEER_BLOCK + LAST_BYTES)
#define ARENA_BYTES (4u << 20)

/* A part of two ranks, of which the first has pieces, and its image: it takes several messages. */
static const struct peer_part info = {.save = {77, 3},
	.step = 1200,
	.tag = "global_step1200",
	.world = 4,
	.first_rank = 2,
	.ranks = 2};
static const struct peer_save none;
static uint8_t *image;
static struct wire_out blob; /* encoded record of the first rank */

static int make_image(void **state)
{
	struct record_piece pieces[PIECES];
	struct record_part part = {.name = "model",
		.raw = true,
		.size_bytes = IMAGE_BYTES,
		.hi = IMAGE_BYTES,
		.pieces_n = PIECES,
		.pieces = pieces};
	const struct record record = {.step = info.step,
		.rank = info.first_rank,
		.world = info.world,
		.parts_n = 1,
		.parts = &part};
	struct rng rng = {test_seed()};

	image = malloc(IMAGE_BYTES);
	assert_non_null(image);
	for (uint32_t i = 0; i < IMAGE_BYTES; i++) {
		image[i] = (uint8_t)(rng_u64(&rng) >> 17);
	}
	for (uint32_t p = 0; p < PIECES; p++) {
		pieces[p].file_off = p * PEER_BLOCK;
		pieces[p].len_bytes = p < PIECES - 1 ? PEER_BLOCK : LAST_BYTES;
		pieces[p].crc = crc32c(0, image + p * PEER_BLOCK, pieces[p].len_bytes);
	}
	record_encode(&record, &blob);
	return blob.failed;
}

static int free_image(void **state)
{
	free(image);
	wire_out_deinit(&blob);
	return 0;
}

/* ---- requests ---- */

static int put_begin(struct peer_link *link)
{
	const struct peer_msg put = {.kind = PEER_PUT,
		.root = ROOT,
		.part = info,
		.len_bytes = IMAGE_BYTES};
	struct peer_msg reply;

	return peer_link_call(link, &put, PEER_OK, &reply, &err);
}

static void put_records(struct peer_link *link)
{
	const struct peer_msg empty = {.kind = PEER_PUT_RECORD, .rank = info.first_rank + 1};
	const struct peer_msg record = {.kind = PEER_PUT_RECORD,
		.rank = info.first_rank,
		.size_bytes = ARENA_BYTES,
		.crc = crc32c(0, blob.bytes, blob.len_bytes),
		.blob = blob.bytes,
		.blob_bytes = (uint32_t)blob.len_bytes};

	OK(peer_link_send(link, &record, &err));
	OK(peer_link_send(link, &empty, &err));
}

static void put_bytes(struct peer_link *link)
{
	for (uint32_t off = 0; off < IMAGE_BYTES; off += PEER_BLOCK) {
		const struct peer_msg bytes = {.kind = PEER_PUT_BYTES,
			.off = off,
			.blob = image + off,
			.blob_bytes =
				IMAGE_BYTES - off < PEER_BLOCK ? IMAGE_BYTES - off : PEER_BLOCK};

		OK(peer_link_send(link, &bytes, &err));
	}
}

static int put_end(struct peer_link *link)
{
	const struct peer_msg put = {.kind = PEER_PUT_END};
	struct peer_msg reply;

	return peer_link_call(link, &put, PEER_OK, &reply, &err);
}

static void put_part(struct peer_link *link)
{
	OK(put_begin(link));
	put_records(link);
	put_bytes(link);
	OK(put_end(link));
}

/* Returns how many parts there are where the links lead. */
static uint32_t count_parts(void)
{
	struct peer_part parts[2];

	return held_list(peers_held(there), ROOT, parts, 2);
}

/* Asks for bytes of the image, and receives them all or an error. */
static int get_bytes(struct peer_link *link, const struct peer_part *part, uint64_t off,
	uint64_t len_bytes)
{
	const struct peer_msg get = {.kind = PEER_GET,
		.root = ROOT,
		.part = *part,
		.off = off,
		.len_bytes = len_bytes};
	uint64_t at = off;

	OK(peer_link_send(link, &get, &err));
	do {
		struct peer_msg reply;
		int rv = peer_link_receive(link, &reply, &err);

		if (rv != 0) {
			return rv;
		}
		assert_int_equal(reply.kind, PEER_BYTES);
		assert_int_equal(reply.off, at);
		assert_true(reply.blob_bytes <= off + len_bytes - at);
		assert_memory_equal(reply.blob, image + at, reply.blob_bytes);
		at += reply.blob_bytes;
	} while (at < off + len_bytes);
	return 0;
}

static void a_part_is_put_listed_and_read(void **state)
{
	struct peer_link *link = open_link();
	const struct peer_msg records = {.kind = PEER_GET_RECORDS, .root = ROOT, .part = info};
	struct peer_part found = {.tag = ""};
	struct peer_msg reply;

	assert_int_equal(count_parts(), 0);
	put_part(link);
	assert_int_equal(held_list(peers_held(there), ROOT, &found, 1), 1);
	assert_int_equal(count_parts(), 1);
	assert_true(peer_save_is(&found.save, &info.save));
	assert_string_equal(found.tag, info.tag);
	assert_int_equal(found.first_rank, info.first_rank);
	OK(peer_link_call(link, &records, PEER_RECORD, &reply, &err));
	assert_int_equal(reply.rank, info.first_rank);
	assert_int_equal(reply.size_bytes, ARENA_BYTES);
	assert_int_equal(reply.blob_bytes, blob.len_bytes);
	assert_int_equal(reply.crc, crc32c(0, blob.bytes, blob.len_bytes));
	assert_memory_equal(reply.blob, blob.bytes, blob.len_bytes);
	OK(peer_link_receive(link, &reply, &err));
	assert_int_equal(reply.kind, PEER_RECORD);
	assert_int_equal(reply.rank, info.first_rank + 1);
	assert_int_equal(reply.blob_bytes, 0);
	OK(get_bytes(link, &info, 0, IMAGE_BYTES));
	OK(get_bytes(link, &info, 0, 1));
	OK(get_bytes(link, &info, IMAGE_BYTES - 1, 1));
	OK(get_bytes(link, &info, 12345, 2 * PEER_BLOCK));
	peer_link_close(link);
}

static void what_is_not_there_is_an_error(void **state)
{
	struct peer_link *link = open_link();
	struct peer_part other = info;

	put_part(link);
	FAILS(PAWL_EINVAL, get_bytes(link, &info, IMAGE_BYTES, 1));
	SAYS("asked for");
	FAILS(PAWL_EINVAL, get_bytes(link, &info, 1, IMAGE_BYTES));
	SAYS("asked for");
	FAILS(PAWL_EINVAL, get_bytes(link, &info, 0, 0));
	FAILS(PAWL_EINVAL, get_bytes(link, &info, 1, UINT64_MAX - 1));
	other.save.number++;
	FAILS(PAWL_ENOENT, get_bytes(link, &other, 0, 1));
	other = info;
	other.first_rank++; /* in the part, but not its first */
	FAILS(PAWL_ENOENT, get_bytes(link, &other, 0, 1));
	OK(get_bytes(link, &info, 0, IMAGE_BYTES)); /* the link goes on */
	peer_link_close(link);
}

/* The error comes at the end, and the link goes on. */
static void a_damaged_part_is_refused_at_its_end(void **state)
{
	struct peer_link *link = open_link();

	for (uint32_t at = 0; at < IMAGE_BYTES; at += PEER_BLOCK) {
		OK(put_begin(link));
		put_records(link);
		image[at] ^= 1;
		put_bytes(link);
		image[at] ^= 1;
		assert_works(link);
		assert_int_equal(held_used_bytes(peers_held(there)), 0); /* before the end */
		FAILS(PAWL_ECORRUPT, put_end(link));
		SAYS("model");
		assert_int_equal(count_parts(), 0);
		assert_int_equal(held_used_bytes(peers_held(there)), 0);
	}
	OK(put_begin(link));
	put_bytes(link); /* without a record */
	FAILS(PAWL_ECORRUPT, put_end(link));
	OK(put_begin(link));
	put_records(link);
	FAILS(PAWL_ECORRUPT, put_end(link)); /* without bytes */
	put_part(link);
	assert_int_equal(count_parts(), 1);
	peer_link_close(link);
}

static void bytes_of_no_part_are_refused(void **state)
{
	struct peer_link *link = open_link();
	const struct peer_msg put = {.kind = PEER_PUT,
		.root = ROOT,
		.part = info,
		.len_bytes = UINT64_MAX / 2};
	struct peer_msg reply;

	FAILS(PAWL_EINVAL, put_end(link));
	put_records(link);
	put_bytes(link);
	FAILS(PAWL_EINVAL, put_end(link));
	SAYS("announced");
	assert_int_equal(peer_link_call(link, &put, PEER_OK, &reply, &err), PAWL_ENOMEM);
	put_records(link); /* as a client does that did not wait for the answer */
	put_bytes(link);
	FAILS(PAWL_ENOMEM, put_end(link));
	put_part(link);
	FAILS(PAWL_EINVAL, put_end(link)); /* once is enough */
	assert_int_equal(count_parts(), 1);
	peer_link_close(link);
}

/* What was being received goes with the connection. */
static void half_a_part_is_dropped(void **state)
{
	struct peer_link *link = open_link();

	OK(put_begin(link));
	put_records(link);
	put_bytes(link);
	assert_works(link);
	assert_true(held_used_bytes(peers_held(there)) > 0);
	peer_link_close(link);
	WITHIN(WITHIN_LONG_S, held_used_bytes(peers_held(there)) == 0);
	assert_int_equal(count_parts(), 0);
}

static void notes_are_kept_for_other_hosts(void **state)
{
	struct peer_link *link = open_link();
	struct wire_out out = {0};
	struct peer_msg reply;

	OK(note(link, PEER_NOTE_WRITE, "hosts/4/join", "hello", PEER_OK, &reply));
	OK(note(link, PEER_NOTE_WRITE, "hosts/8/join", "", PEER_OK, &reply));
	OK(note(link, PEER_NOTE_READ, "hosts/4/join", NULL, PEER_NOTE, &reply));
	assert_int_equal(reply.blob_bytes, 5);
	assert_memory_equal(reply.blob, "hello", 5);
	OK(note(link, PEER_NOTE_READ, "hosts/8/join", NULL, PEER_NOTE, &reply));
	assert_int_equal(reply.blob_bytes, 0);
	OK(notes_list(peers_notes(there), ROOT, "hosts", &out, &err)); /* as rank 0's host does */
	assert_int_equal(out.len_bytes, 4);
	assert_memory_equal(out.bytes, "4\0008", 4);
	FAILS(PAWL_ENOENT, note(link, PEER_NOTE_READ, "hosts/5", NULL, PEER_NOTE, &reply));
	SAYS("hosts/5");
	OK(notes_read(peers_notes(there), ROOT, "hosts/4/join", &out, &err));
	wire_out_deinit(&out);
	FAILS(PAWL_ENOENT, notes_read(peers_notes(here), ROOT, "hosts/4/join", &out, &err));
	notes_remove(peers_notes(there), ROOT, "hosts");
	FAILS(PAWL_ENOENT, note(link, PEER_NOTE_READ, "hosts/4/join", NULL, PEER_NOTE, &reply));
	peer_link_close(link);
}

static void a_long_note_travels_whole(void **state)
{
	struct peer_link *link = open_link();
	struct peer_msg reply;
	struct peer_msg msg = {.kind = PEER_NOTE_WRITE,
		.root = ROOT,
		.path = "long",
		.blob = image,
		.blob_bytes = IMAGE_BYTES};

	OK(peer_link_call(link, &msg, PEER_OK, &reply, &err));
	OK(note(link, PEER_NOTE_READ, "long", NULL, PEER_NOTE, &reply));
	assert_int_equal(reply.blob_bytes, IMAGE_BYTES);
	assert_memory_equal(reply.blob, image, IMAGE_BYTES);
	assert_works(link);
	peer_link_close(link);
}

/* A path that leads out of the notes ends the connection, with a reason. */
static void a_bad_path_is_refused(void **state)
{
	struct peer_link *link = open_link();
	struct peer_msg reply;

	FAILS(PAWL_ECORRUPT, note(link, PEER_NOTE_WRITE, "../x", "", PEER_OK, &reply));
	SAYS("invalid");
	FAILS(PAWL_EPEER, note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply));
	peer_link_close(link);
}

/* ---- rounds ---- */

static int ask_next(struct peer_link *link, struct peer_msg *round)
{
	const struct peer_msg next = {.kind = PEER_NEXT,
		.root = ROOT,
		.save = round->save,
		.global = round->global};

	return peer_link_call(link, &next, PEER_ROUND, round, &err);
}

static void a_save_is_announced_and_done(void **state)
{
	struct peer_link *link = open_link();
	struct peer_msg done = {.kind = PEER_DONE, .root = ROOT, .part = info};
	struct peer_msg round = {.kind = PEER_ROUND};
	struct peer_msg reply;

	rounds_begin(peers_rounds(there), ROOT, info.save.run);
	OK(rounds_announce(peers_rounds(there), ROOT, &info, &none, &err));
	OK(ask_next(link, &round));
	assert_true(peer_save_is(&round.save, &info.save));
	assert_int_equal(round.global.run, 0);
	done.part.first_rank = 0;
	OK(peer_link_call(link, &done, PEER_OK, &reply, &err));
	done.part.first_rank = 2;
	OK(peer_link_call(link, &done, PEER_OK, &reply, &err));
	OK(ask_next(link, &round));
	assert_true(peer_save_is(&round.global, &info.save));
	OK(rounds_await(peers_rounds(there), ROOT, &info.save, 1, &err));
	peer_link_close(link);
}

static void a_failed_part_fails_the_round(void **state)
{
	struct peer_link *link = open_link();
	const struct peer_msg done = {.kind = PEER_DONE,
		.root = ROOT,
		.part = info,
		.code = PAWL_ENOMEM,
		.text = "no memory at rank 2"};
	struct peer_msg reply;

	rounds_begin(peers_rounds(there), ROOT, info.save.run);
	OK(rounds_announce(peers_rounds(there), ROOT, &info, &none, &err));
	OK(peer_link_call(link, &done, PEER_OK, &reply, &err));
	FAILS(PAWL_ENOMEM, rounds_await(peers_rounds(there), ROOT, &info.save, 1, &err));
	SAYS("no memory at rank 2");
	peer_link_close(link);
}

/* ---- cancel and close ---- */

static void *cancel_soon(void *user)
{
	within_pace(0.05);
	peer_link_cancel(user);
	return NULL;
}

static void a_call_is_canceled(void **state)
{
	struct peer_link *link = open_link();
	struct peer_msg round = {.kind = PEER_ROUND};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, cancel_soon, link), 0);
	FAILS(PAWL_ECANCELED, ask_next(link, &round)); /* nothing is announced */
	pthread_join(thread, NULL);
	FAILS(PAWL_ECANCELED, ask_next(link, &round));
	peer_link_close(link);
}

static void connecting_is_canceled(void **state)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char address[PEER_ADDRESS_MAX];
	struct peer_link *link;
	pthread_t thread;

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0); /* the kernel connects, and nobody answers */
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	for (int early = 0; early <= 1; early++) {
		OK(peer_link_make(&link, here, &err));
		if (early) {
			peer_link_cancel(link);
		} else {
			assert_int_equal(pthread_create(&thread, NULL, cancel_soon, link), 0);
		}
		FAILS(PAWL_ECANCELED, peer_link_connect(link, address, &err));
		if (!early) {
			pthread_join(thread, NULL);
		}
		peer_link_close(link);
	}
	close(fd);
}

static void *close_soon(void *user)
{
	within_pace(0.05);
	peers_close(there);
	return NULL;
}

/* Threads that wait for a request, for a round, for a greeting or the rest of a message end. */
static void a_server_closes_at_once(void **state)
{
	struct peer_link *idle = open_link();
	struct peer_link *asking = open_link();
	struct peer_msg round = {.kind = PEER_ROUND};
	struct peer_stream half;
	int stranger = connect_raw(there);
	pthread_t thread;
	int rv;

	start_stream(&half, there);
	send_bytes(&half, "\x40\x00", 2);
	assert_int_equal(pthread_create(&thread, NULL, close_soon, NULL), 0);
	rv = ask_next(asking, &round);
	assert_true(rv == PAWL_EPEER || rv == PAWL_ECANCELED);
	pthread_join(thread, NULL);
	there = NULL;
	await_close(stranger);
	close(stranger);
	end_stream(&half);
	peer_link_close(idle);
	peer_link_close(asking);
}

static void *use_links(void *user)
{
	struct peer_link *link;

	while (link_to(&link, user, NULL) == 0) {
		const struct peer_msg write = {.kind = PEER_NOTE_WRITE, .root = ROOT, .path = "a"};
		struct peer_msg reply;

		for (int i = 0; i < 5; i++) {
			if (peer_link_call(link, &write, PEER_OK, &reply, NULL) != 0) {
				break;
			}
		}
		peer_link_close(link);
	}
	return NULL;
}

static void a_server_closes_amid_requests(void **state)
{
	pthread_t threads[3];
	char address[PEER_ADDRESS_MAX];

	snprintf(address, sizeof(address), "%s", peers_address(there));
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, use_links, address), 0);
	}
	close_soon(NULL);
	there = NULL;
	for (size_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
}

/* ---- addresses, and what the system refuses ---- */

static void the_leader_is_known_by_its_address(void **state)
{
	char address[PEER_ADDRESS_MAX];

	FAILS(PAWL_ENOENT, peers_leader(here, address, &err));
	assert_false(peers_is_leader(here));
	peers_set_leader(here, "127.0.0.1", peers_port(there));
	OK(peers_leader(here, address, &err));
	assert_string_equal(address, peers_address(there));
	assert_false(peers_is_leader(here));
	peers_set_leader(here, "127.0.0.1", peers_port(here));
	assert_true(peers_is_leader(here));
	peers_set_leader(here, "0:0:0::1", 80);
	OK(peers_leader(here, address, &err));
	assert_string_equal(address, "[::1]:80");
	peers_set_leader(here, "127.0.0.1", 0);
	FAILS(PAWL_ENOENT, peers_leader(here, address, &err));
	assert_string_equal(peers_domain(here), "rack1");
	assert_string_equal(peers_job(here), "gpt");
}

static void addresses_of_ipv6_work(void **state)
{
	const struct peers_options options = {.job = "gpt",
		.token = TOKEN,
		.address = "::1",
		.domain = ""};

	peers_close(there);
	there = NULL;
	if (peers_open(&there, &options, &err) != 0) {
		skip(); /* this machine has no IPv6 */
	}
	assert_int_equal(strncmp(peers_address(there), "[::1]:", 6), 0);
	peer_link_close(open_link());
}

/* A storage thread that hangs goes on after the agent has closed all, and must find them. */
static void what_a_hanging_thread_uses_stays(void **state)
{
	static struct peers *peers; /* for leak checkers: it is never freed */
	char address[PEER_ADDRESS_MAX];

	peers = open_peers("gpt", TOKEN);
	peers_set_leader(peers, "127.0.0.1", 1);
	peers_outlive(peers);
	peers_close(peers);
	assert_int_equal(peers_leader(peers, address, &err), 0);
	assert_string_equal(address, "127.0.0.1:1");
}

static void bad_options_are_refused(void **state)
{
	char name[CKPT_JOB_MAX + 1] = {0};
	struct peers_options options = {.job = "gpt", .address = "localhost", .domain = ""};
	struct peers *peers = NULL;

	FAILS(PAWL_EINVAL, peers_open(&peers, &options, &err));
	SAYS("localhost is no numeric address");
	options.address = "203.0.113.1";
	FAILS(PAWL_EIO, peers_open(&peers, &options, &err));
	SAYS("203.0.113.1");
	memset(name, 'a', CKPT_JOB_MAX);
	options.job = name;
	FAILS(PAWL_EINVAL, peers_open(&peers, &options, &err));
	options.job = "gpt";
	options.domain = name;
	FAILS(PAWL_EINVAL, peers_open(&peers, &options, &err));
	assert_null(peers);
	peers_close(NULL);
}

/* Each allocation and call that can fail at opening fails once; nothing stays behind. */
static void opening_may_fail_anywhere(void **state)
{
	static const char *const points[] = {"peer.", "tls.", "notes.", "held.", "rounds."};
	const struct peers_options options = {.job = "gpt", .address = "127.0.0.1", .domain = ""};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		for (uint64_t nth = 1; each_fault(nth); nth++) {
			struct peers *peers = NULL;
			int rv;

			fault_arm(points[i], nth, ENOMEM, false);
			rv = peers_open(&peers, &options, &err);
			fault_disarm();
			assert_true((rv != 0) == (peers == NULL));
			peers_close(peers);
		}
	}
}

/* Faults on both sides, at every call: each is an error of the client, or survived. */
static void calls_may_fail_anywhere(void **state)
{
	static const char *const points[] = {"peer.", "tls.", "wire.", "notes."};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		for (uint64_t nth = 1; nth <= 25; nth++) {
			struct peer_link *link = NULL;
			struct peer_msg reply;

			fault_arm(points[i], nth, ENOMEM, false);
			if (link_to(&link, peers_address(there), &err) == 0 &&
				note(link, PEER_NOTE_WRITE, "a", "text", PEER_OK, &reply) == 0) {
				(void)note(link, PEER_NOTE_READ, "a", NULL, PEER_NOTE, &reply);
			}
			fault_disarm();
			peer_link_close(link);
		}
	}
	peer_link_close(open_link());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_part_is_put_listed_and_read, begin, end),
		cmocka_unit_test_setup_teardown(what_is_not_there_is_an_error, begin, end),
		cmocka_unit_test_setup_teardown(a_damaged_part_is_refused_at_its_end, begin, end),
		cmocka_unit_test_setup_teardown(bytes_of_no_part_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(half_a_part_is_dropped, begin, end),
		cmocka_unit_test_setup_teardown(notes_are_kept_for_other_hosts, begin, end),
		cmocka_unit_test_setup_teardown(a_long_note_travels_whole, begin, end),
		cmocka_unit_test_setup_teardown(a_bad_path_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(a_save_is_announced_and_done, begin, end),
		cmocka_unit_test_setup_teardown(a_failed_part_fails_the_round, begin, end),
		cmocka_unit_test_setup_teardown(a_call_is_canceled, begin, end),
		cmocka_unit_test_setup_teardown(connecting_is_canceled, begin, end),
		cmocka_unit_test_setup_teardown(a_server_closes_at_once, begin, end),
		cmocka_unit_test_setup_teardown(a_server_closes_amid_requests, begin, end),
		cmocka_unit_test_setup_teardown(the_leader_is_known_by_its_address, begin, end),
		cmocka_unit_test_setup_teardown(addresses_of_ipv6_work, begin, end),
		cmocka_unit_test_setup_teardown(what_a_hanging_thread_uses_stays, begin, end),
		cmocka_unit_test_setup_teardown(bad_options_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(opening_may_fail_anywhere, begin, end),
		cmocka_unit_test_setup_teardown(calls_may_fail_anywhere, begin, end),
	};
	const struct sigaction ignore = {.sa_handler = SIG_IGN};

	sigaction(SIGPIPE, &ignore, NULL); /* as every program with an agent has it */
	test_times("peer_next=1000");      /* what ends it is a call */
	return cmocka_run_group_tests(tests, make_image, free_image);
}
