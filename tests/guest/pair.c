// link: -libverbs -lpthread
// pair DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [KEY=VALUE…]: a reliable connection between two devices, both ends in
// this process; writes over it until the time is over or the connection breaks. Keys: seconds=5 size=4096 depth=8
// timeout=14 retry=3 rnr_retry=1 pause_us=0 same_qpn=0 (1: both ends get the same QPN) linger=0 (seconds a broken
// connection keeps its QPs) send=0 (1: sends instead of writes, to receives that the peer keeps posting); and two faults
// that SIGUSR1 begins: bad_rkey=0 (1: writes with a key that is none) starve_ms=0 (for so long the peer posts no receive;
// -1: for ever). SIGTERM ends it as if its time were over. Prints what happens as lines of JSON, each with `t`, CLOCK_MONOTONIC nanoseconds: "connected" (both
// QPNs), "async" (an asynchronous event), "begins" and "fed" (a fault of its own, and the end of it), "error" (the first
// failed completion of either end), "state" (both ends after that), "end" (the account: errors are failed completions,
// flushed those of them that only follow). Exit code 0: all well; 3: the connection broke.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVES = 16 };

struct end {
    const char *device;
    int gid_index;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    union ibv_gid gid;
    int receives;
    long failed, flushed;
};

static volatile sig_atomic_t faulty;

static void on_signal(int number) { faulty = number; }

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

__attribute__((format(printf, 2, 3))) static void say(const char *what, const char *format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    printf("{\"t\":%lld,\"what\":\"%s\",%s}\n", now(), what, line);
    fflush(stdout);
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int option(int argc, char **argv, const char *key, int value) {
    size_t length = strlen(key);
    for (int i = 5; i < argc; i++)
        if (!strncmp(argv[i], key, length) && argv[i][length] == '=')
            value = atoi(argv[i] + length + 1);
    return value;
}

static volatile sig_atomic_t asked_to_end;

static void ask_to_end(int signal) {
    (void)signal;
    asked_to_end = 1;
}

static void *async_events(void *argument) {
    struct end *end = argument;
    struct ibv_async_event event;
    while (!ibv_get_async_event(end->context, &event)) {
        say("async", "\"device\":\"%s\",\"event\":\"%s\",\"number\":%d", end->device,
            ibv_event_type_str(event.event_type), event.event_type);
        ibv_ack_async_event(&event);
    }
    return NULL;
}

static void open_end(struct end *end, int size) {
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(devices[i]), end->device))
            end->context = ibv_open_device(devices[i]);
    if (!end->context)
        die(end->device);
    size_t room = ((size_t)size + 4095) & ~4095UL;
    char *memory = aligned_alloc(4096, room);
    end->pd = ibv_alloc_pd(end->context);
    end->cq = ibv_create_cq(end->context, 256, NULL, NULL, 0);
    if (!memory || !end->pd || !end->cq || ibv_query_gid(end->context, 1, end->gid_index, &end->gid))
        die("set-up");
    memset(memory, 1, room);
    end->mr = ibv_reg_mr(end->pd, memory, (size_t)size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!end->mr)
        die("set-up");
    pthread_t thread;
    pthread_create(&thread, NULL, async_events, end);
}

static void create_qp(struct end *end, int depth) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = (uint32_t)depth, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
    end->qp = ibv_create_qp(end->pd, &attributes);
    if (!end->qp)
        die("create_qp");
}

// Replaces the end with the lower QPN until both have the same; devices number their queue pairs upwards.
static void level(struct end *a, struct end *b, int depth) {
    for (int tries = 0; a->qp->qp_num != b->qp->qp_num; tries++) {
        struct end *lower = a->qp->qp_num < b->qp->qp_num ? a : b;
        if (tries == 100000 || ibv_destroy_qp(lower->qp))
            die("same_qpn");
        create_qp(lower, depth);
    }
}

static void post_receive(struct end *end) {
    struct ibv_sge piece = {(uintptr_t)end->mr->addr, (uint32_t)end->mr->length, end->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &piece, .num_sge = 1}, *bad;
    if (ibv_post_recv(end->qp, &request, &bad))
        die("post_recv");
    end->receives++;
}

static void initialise(struct end *end) {
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    if (ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("INIT");
    // A receive that no write consumes: it is flushed when this end breaks, which is how this end learns of it.
    post_receive(end);
}

static void connect_end(struct end *end, const struct end *to, int timeout, int retry, int rnr_retry) {
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = to->gid, .sgid_index = (uint8_t)end->gid_index, .hop_limit = 64}}};
    if (ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("RTR");
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = (uint8_t)timeout, .retry_cnt = (uint8_t)retry,
                              .rnr_retry = (uint8_t)rnr_retry, .max_rd_atomic = 1};
    if (ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                         IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
        die("RTS");
}

// Takes the completions of an end that are there; returns how many succeeded, and counts the others.
static int take(struct end *end, const char *name, long long last_success) {
    struct ibv_wc done[16];
    int n = ibv_poll_cq(end->cq, 16, done), succeeded = 0;
    if (n < 0)
        die("poll_cq");
    for (int i = 0; i < n; i++) {
        if (done[i].status == IBV_WC_SUCCESS) {
            succeeded++;
            continue;
        }
        end->flushed += done[i].status == IBV_WC_WR_FLUSH_ERR;
        if (!end->failed++) {
            say("error", "\"end\":\"%s\",\"device\":\"%s\",\"qpn\":%u,\"status\":%d,\"text\":\"%s\",\"since_success_ns\":%lld",
                name, end->device, done[i].qp_num, done[i].status, ibv_wc_status_str(done[i].status),
                now() - last_success);
        }
    }
    return succeeded;
}

static int state(struct end *end) {
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    return ibv_query_qp(end->qp, &attributes, IBV_QP_STATE, &init) ? -1 : (int)attributes.qp_state;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: pair DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [KEY=VALUE…]\n");
        return 2;
    }
    struct end a = {.device = argv[1], .gid_index = atoi(argv[2])}, b = {.device = argv[3], .gid_index = atoi(argv[4])};
    int size = option(argc, argv, "size", 4096), depth = option(argc, argv, "depth", 8);
    int pause_us = option(argc, argv, "pause_us", 0);
    int send = option(argc, argv, "send", 0), bad_rkey = option(argc, argv, "bad_rkey", 0);
    long long limit = option(argc, argv, "seconds", 5) * 1000000000LL;
    long long starve = option(argc, argv, "starve_ms", 0) * 1000000LL;
    signal(SIGUSR1, on_signal);
    open_end(&a, size);
    open_end(&b, size);
    create_qp(&a, depth);
    create_qp(&b, depth);
    if (option(argc, argv, "same_qpn", 0))
        level(&a, &b, depth);
    initialise(&a);
    initialise(&b);
    connect_end(&a, &b, option(argc, argv, "timeout", 14), option(argc, argv, "retry", 3),
                option(argc, argv, "rnr_retry", 1));
    connect_end(&b, &a, option(argc, argv, "timeout", 14), option(argc, argv, "retry", 3),
                option(argc, argv, "rnr_retry", 1));
    signal(SIGTERM, ask_to_end);
    say("connected", "\"pid\":%d,\"device\":\"%s\",\"qpn\":%u,\"peer_device\":\"%s\",\"peer_qpn\":%u", getpid(), a.device,
        a.qp->qp_num, b.device, b.qp->qp_num);

    long posted = 0, succeeded = 0;
    long long start = now(), last_success = start, begun = 0;
    int starving = 0;
    // Until the time is over; then until what was posted has come back, for at most another ten seconds.
    while (posted > succeeded + a.failed ? now() - start < limit + 10000000000LL : !a.failed && now() - start < limit) {
        if (asked_to_end && now() - start < limit)
            limit = now() - start;
        if (faulty && !begun) {
            begun = now();
            starving = starve != 0;
            say("begins", "\"bad_rkey\":%d,\"starve_ns\":%lld", bad_rkey, starve);
        }
        if (starving && starve > 0 && now() - begun >= starve) {
            starving = 0;
            say("fed", "\"device\":\"%s\",\"qpn\":%u", b.device, b.qp->qp_num);
        }
        while (send && !starving && !b.failed && b.receives < RECEIVES)
            post_receive(&b);
        while (!a.failed && now() - start < limit && posted - succeeded < depth) {
            struct ibv_sge piece = {(uintptr_t)a.mr->addr, (uint32_t)size, a.mr->lkey};
            struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE},
                               *bad;
            request.wr.rdma.remote_addr = (uintptr_t)b.mr->addr;
            request.wr.rdma.rkey = bad_rkey && begun ? b.mr->rkey ^ 0x5a5a5a00u : b.mr->rkey;
            if (ibv_post_send(a.qp, &request, &bad))
                break;
            posted++;
            if (pause_us) {
                usleep((useconds_t)pause_us);
                break;
            }
        }
        long before = a.failed;
        int n = take(&a, "a", last_success);
        if (n) {
            succeeded += n;
            last_success = now();
        }
        b.receives -= take(&b, "b", last_success);
        // One that waits for its answer leaves the processor to others.
        if (pause_us && !n && posted - succeeded >= depth)
            usleep(1000);
        if (a.failed && !before)
            say("state", "\"a\":%d,\"b\":%d", state(&a), state(&b));
    }
    // What follows from the error on the peer's end comes a moment later.
    for (long long last = now(); a.failed && b.failed < b.receives && now() - last < 300000000LL;)
        take(&b, "b", last_success);
    say("end", "\"pid\":%d,\"device\":\"%s\",\"qpn\":%u,\"peer_device\":\"%s\",\"peer_qpn\":%u,\"posts\":%ld,\"wrs\":%ld,"
        "\"bytes\":%lld,\"completions\":%ld,\"errors\":%ld,\"flushed\":%ld,\"peer_errors\":%ld,\"peer_flushed\":%ld", getpid(),
        a.device, a.qp->qp_num, b.device, b.qp->qp_num, posted, posted, (long long)posted * size, succeeded, a.failed,
        a.flushed, b.failed, b.flushed);
    fflush(stdout);
    // As a real program does, which finds out, tells its peers, and only then tears down.
    if (a.failed)
        sleep((unsigned)option(argc, argv, "linger", 0));
    // The threads that wait for events never end.
    _exit(a.failed ? 3 : 0);
}
