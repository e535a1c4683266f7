// link: -libverbs
// verbs DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [SCENARIO…]: reliable connections between two devices, both ends in
// this process, over which every kind of request is posted that the software driver knows; each scenario has QPs of its
// own, all of which live until the end. Prints what it did to each QP as a line of JSON: {"scenario","end","device","qpn",
// "pid","posts","wrs","bytes","signaled","recv_wrs","completions","opcodes":{…},"errors":{…},"vendor_err","size_log2":[…],
// "latency_log2_ns":[…]}. The latency is that of each signalled request but the first of its QP, from before the call that
// posts to after the call that finds the completion. The scenario `warm` creates one QP of each kind and posts nothing:
// for a watcher that has to see a call of each kind first; it ends after 60 s. Exit code 0: all went as it had to.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 128, ROOM = 65536, PIECE = 256, OPCODES = 16, STATUSES = 24, LATENCIES = 40, SIZES = 32, MOST_QPS = 4 };

enum ids { UNIQUE, RING, CONSTANT };

struct scenario {
    const char *name;
    enum ibv_wr_opcode opcode;
    int posts, list, sges, piece, in_line, signal_every, poll, receive_list, qps, shared_receives, extended, extended_cq, bad;
    enum ids ids;
};

static const struct scenario scenarios[] = {
    {.name = "write", .opcode = IBV_WR_RDMA_WRITE, .posts = 200},
    {.name = "write_ring", .opcode = IBV_WR_RDMA_WRITE, .posts = 60, .list = 3, .ids = RING},
    {.name = "write_constant", .opcode = IBV_WR_RDMA_WRITE, .posts = 60, .list = 3, .ids = CONSTANT},
    {.name = "write_list", .opcode = IBV_WR_RDMA_WRITE, .posts = 10, .list = 40, .signal_every = 40, .sges = 2},
    {.name = "write_pieces", .opcode = IBV_WR_RDMA_WRITE, .posts = 20, .sges = 4},
    {.name = "write_many_pieces", .opcode = IBV_WR_RDMA_WRITE, .posts = 20, .sges = 16, .piece = 60},
    {.name = "write_inline", .opcode = IBV_WR_RDMA_WRITE, .posts = 30, .in_line = 1, .piece = 48, .sges = 2},
    {.name = "write_empty", .opcode = IBV_WR_RDMA_WRITE, .posts = 10, .sges = -1},
    {.name = "write_moderated", .opcode = IBV_WR_RDMA_WRITE, .posts = 120, .list = 3, .signal_every = 8, .poll = 32},
    {.name = "write_moderated_constant", .opcode = IBV_WR_RDMA_WRITE, .posts = 120, .list = 1, .signal_every = 8, .poll = 32,
     .ids = CONSTANT},
    {.name = "write_imm", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .posts = 40, .receive_list = 5},
    {.name = "read", .opcode = IBV_WR_RDMA_READ, .posts = 40, .sges = 2},
    {.name = "compare_swap", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .posts = 30, .piece = 8},
    {.name = "fetch_add", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .posts = 30, .piece = 8, .ids = CONSTANT},
    {.name = "send", .opcode = IBV_WR_SEND, .posts = 40, .receive_list = 1},
    {.name = "send_imm", .opcode = IBV_WR_SEND_WITH_IMM, .posts = 20, .list = 3, .receive_list = 60},
    {.name = "send_shared", .opcode = IBV_WR_SEND, .posts = 40, .receive_list = 8, .shared_receives = 1},
    {.name = "send_many", .opcode = IBV_WR_SEND, .posts = 160, .receive_list = 10, .qps = 4},
    {.name = "write_many_constant", .opcode = IBV_WR_RDMA_WRITE, .posts = 160, .qps = 4, .ids = CONSTANT},
    {.name = "new_write", .opcode = IBV_WR_RDMA_WRITE, .posts = 40, .list = 3, .sges = 1, .extended = 1},
    {.name = "new_write_long", .opcode = IBV_WR_RDMA_WRITE, .posts = 6, .list = 40, .sges = 1, .extended = 1, .ids = CONSTANT},
    {.name = "new_write_pieces", .opcode = IBV_WR_RDMA_WRITE, .posts = 20, .list = 2, .sges = 4, .extended = 1},
    {.name = "new_write_inline", .opcode = IBV_WR_RDMA_WRITE, .posts = 20, .in_line = 1, .piece = 48, .extended = 1},
    {.name = "new_write_inline_list", .opcode = IBV_WR_RDMA_WRITE, .posts = 20, .in_line = 1, .piece = 24, .sges = 3, .extended = 1},
    {.name = "new_write_imm", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .posts = 20, .receive_list = 5, .extended = 1},
    {.name = "new_read", .opcode = IBV_WR_RDMA_READ, .posts = 20, .extended = 1},
    {.name = "new_send", .opcode = IBV_WR_SEND, .posts = 20, .list = 3, .receive_list = 30, .extended = 1, .ids = RING},
    {.name = "new_send_imm", .opcode = IBV_WR_SEND_WITH_IMM, .posts = 20, .receive_list = 5, .extended = 1},
    {.name = "new_compare_swap", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .posts = 20, .piece = 8, .extended = 1},
    {.name = "new_fetch_add", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .posts = 20, .piece = 8, .extended = 1},
    {.name = "new_queue", .opcode = IBV_WR_RDMA_WRITE, .posts = 60, .list = 3, .signal_every = 3, .extended_cq = 1},
    {.name = "new_queue_constant", .opcode = IBV_WR_SEND, .posts = 60, .receive_list = 10, .extended = 1, .extended_cq = 1,
     .ids = CONSTANT},
    {.name = "bad_rkey", .opcode = IBV_WR_RDMA_WRITE, .posts = 8, .receive_list = 4, .bad = 3},
    {.name = "bad_rkey_list", .opcode = IBV_WR_RDMA_WRITE, .posts = 1, .list = 10, .signal_every = 5, .receive_list = 4, .bad = 3},
    {.name = "new_bad_rkey", .opcode = IBV_WR_RDMA_WRITE, .posts = 2, .list = 4, .receive_list = 4, .bad = 2, .extended = 1,
     .extended_cq = 1},
};

// A signalled request that is outstanding, and how many requests are done with it.
struct signalled {
    long long t;
    long wrs;
};

struct account {
    long posts, wrs, bytes, signaled, recv_wrs, completions, opcodes[OPCODES], errors[STATUSES], size_log2[SIZES],
        latency[LATENCIES];
    long vendor_err, timed;
};

struct qp {
    const char *scenario, *end, *device;
    struct ibv_qp *qp;
    struct account done;
    struct signalled outstanding[DEPTH];
    unsigned first, last;
    long free_wrs, receives;
};

struct device {
    const char *name;
    int gid_index;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    union ibv_gid gid;
};

static struct device near, far;
static struct qp *all[512];
static int qps;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int log2_of(unsigned long long value) { return 63 - __builtin_clzll(value | 1); }

static void open_device(struct device *device) {
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(devices[i]), device->name))
            device->context = ibv_open_device(devices[i]);
    if (!device->context)
        die(device->name);
    char *memory = aligned_alloc(4096, ROOM);
    device->pd = ibv_alloc_pd(device->context);
    if (!memory || !device->pd || ibv_query_gid(device->context, 1, device->gid_index, &device->gid))
        die("set-up");
    memset(memory, 0, ROOM);
    device->mr = ibv_reg_mr(device->pd, memory, ROOM,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    if (!device->mr)
        die("reg_mr");
}

static struct ibv_cq *new_queue(struct device *device, int extended) {
    struct ibv_cq *queue;
    if (extended) {
        struct ibv_cq_init_attr_ex attributes = {
            .cqe = 512, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_IMM};
        struct ibv_cq_ex *queue_ex = ibv_create_cq_ex(device->context, &attributes);
        queue = queue_ex ? ibv_cq_ex_to_cq(queue_ex) : NULL;
    } else {
        queue = ibv_create_cq(device->context, 512, NULL, NULL, 0);
    }
    if (!queue)
        die("create_cq");
    return queue;
}

static struct qp *new_qp(const struct scenario *what, struct device *device, struct ibv_cq *sends, struct ibv_cq *receives,
                         struct ibv_srq *srq, int extended) {
    struct qp *qp = calloc(1, sizeof *qp);
    struct ibv_qp_init_attr_ex attributes = {
        .send_cq = sends, .recv_cq = receives, .srq = srq, .qp_type = IBV_QPT_RC, .pd = device->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = srq ? 0 : 256, .max_send_sge = 16, .max_recv_sge = srq ? 0 : 1,
                .max_inline_data = 128}};
    if (extended) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                                    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    qp->qp = ibv_create_qp_ex(device->context, &attributes);
    if (!qp->qp)
        die("create_qp_ex");
    qp->scenario = what->name;
    qp->device = device->name;
    qp->end = device == &near ? "near" : "far";
    qp->free_wrs = DEPTH;
    qp->done.vendor_err = -1;
    all[qps++] = qp;
    return qp;
}

static void connect_qp(struct qp *qp, const struct device *device, const struct qp *to, const struct device *peer) {
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
    if (ibv_modify_qp(qp->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("INIT");
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = peer->gid, .sgid_index = (uint8_t)device->gid_index, .hop_limit = 64}}};
    if (ibv_modify_qp(qp->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("RTR");
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 4};
    if (ibv_modify_qp(qp->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_MAX_QP_RD_ATOMIC))
        die("RTS");
}

static struct qp *qp_of(struct device *device, unsigned qpn) {
    for (int i = qps - 1; i >= 0; i--)
        if (all[i]->qp->qp_num == qpn && all[i]->device == device->name)
            return all[i];
    fprintf(stderr, "a completion of an unknown QP %u\n", qpn);
    exit(1);
}

// Takes a completion into the account. `t` is when the call returned that found it.
static void completed(struct qp *qp, int status, int received, long vendor_err, long long t) {
    struct account *done = &qp->done;
    done->completions++;
    if (status) {
        done->errors[status]++;
        if (status != IBV_WC_WR_FLUSH_ERR && done->vendor_err < 0)
            done->vendor_err = vendor_err;
    } else if (!received) {
        struct signalled *request = &qp->outstanding[qp->first++ % DEPTH];
        qp->free_wrs += request->wrs;
        if (done->timed++)
            done->latency[log2_of((unsigned long long)(t - request->t))]++;
    }
}

// Polls a queue once; returns how many completions there were.
static int poll_queue(struct device *device, struct ibv_cq *queue, int extended, int most) {
    if (extended) {
        struct ibv_cq_ex *queue_ex = (struct ibv_cq_ex *)queue;
        struct ibv_poll_cq_attr attributes = {0};
        int n = 0;
        if (ibv_start_poll(queue_ex, &attributes))
            return 0;
        for (;;) {
            long long t = now();
            int status = (int)queue_ex->status;
            completed(qp_of(device, ibv_wc_read_qp_num(queue_ex)), status,
                      !status && ibv_wc_read_opcode(queue_ex) & IBV_WC_RECV, ibv_wc_read_vendor_err(queue_ex), t);
            if (++n == most)
                break;
            // The software driver (seen in rdma-core 44) ends the poll itself when there is nothing more: one more end
            // would pass over a completion that is yet to come.
            if (ibv_next_poll(queue_ex))
                return n;
        }
        ibv_end_poll(queue_ex);
        return n;
    }
    struct ibv_wc done[64];
    int n = ibv_poll_cq(queue, most, done);
    long long t = now();
    if (n < 0)
        die("poll_cq");
    for (int i = 0; i < n; i++)
        completed(qp_of(device, done[i].qp_num), done[i].status, !done[i].status && done[i].opcode & IBV_WC_RECV,
                  done[i].vendor_err, t);
    return n;
}

// The pieces of one request.
static int pieces(const struct scenario *what, struct ibv_sge *list) {
    int n = what->sges < 0 ? 0 : what->sges ? what->sges : 1;
    for (int i = 0; i < n; i++)
        list[i] = (struct ibv_sge){(uintptr_t)near.mr->addr + (unsigned)i * 1024,
                                   (uint32_t)(what->piece ? what->piece : PIECE), near.mr->lkey};
    return n;
}

static void post_list(const struct scenario *what, struct ibv_qp *qp, int n, const uint64_t *ids, const int *signal,
                      const uint32_t *rkeys) {
    struct ibv_send_wr requests[64], *bad;
    struct ibv_sge lists[64][16];
    memset(requests, 0, sizeof requests);
    for (int k = 0; k < n; k++) {
        struct ibv_send_wr *request = &requests[k];
        request->wr_id = ids[k];
        request->next = k + 1 < n ? request + 1 : NULL;
        request->sg_list = lists[k];
        request->num_sge = pieces(what, lists[k]);
        request->opcode = what->opcode;
        request->send_flags = (signal[k] ? IBV_SEND_SIGNALED : 0) | (what->in_line ? IBV_SEND_INLINE : 0);
        if (what->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || what->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            request->wr.atomic.remote_addr = (uintptr_t)far.mr->addr;
            request->wr.atomic.rkey = rkeys[k];
        } else if (what->opcode != IBV_WR_SEND && what->opcode != IBV_WR_SEND_WITH_IMM) {
            request->wr.rdma.remote_addr = (uintptr_t)far.mr->addr;
            request->wr.rdma.rkey = rkeys[k];
        }
    }
    if (ibv_post_send(qp, requests, &bad))
        die("post_send");
}

// The same call by call. Returns when the requests were posted, which the last call does.
static long long post_calls(const struct scenario *what, struct ibv_qp *qp, int n, const uint64_t *ids, const int *signal,
                       const uint32_t *rkeys, int abort) {
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    uint64_t at = (uintptr_t)far.mr->addr;
    ibv_wr_start(ex);
    for (int k = 0; k < n; k++) {
        ex->wr_id = ids[k];
        ex->wr_flags = (signal[k] ? IBV_SEND_SIGNALED : 0) | (what->in_line ? IBV_SEND_INLINE : 0);
        switch (what->opcode) {
        case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, rkeys[k], at); break;
        case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(ex, rkeys[k], at, 1); break;
        case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, rkeys[k], at); break;
        case IBV_WR_SEND: ibv_wr_send(ex); break;
        case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, 1); break;
        case IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(ex, rkeys[k], at, 0, 0); break;
        case IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_atomic_fetch_add(ex, rkeys[k], at, 1); break;
        default: die("opcode");
        }
        struct ibv_sge list[16];
        int count = pieces(what, list);
        if (what->in_line) {
            struct ibv_data_buf buffers[16];
            for (int i = 0; i < count; i++)
                buffers[i] = (struct ibv_data_buf){(void *)(uintptr_t)list[i].addr, list[i].length};
            if (count == 1)
                ibv_wr_set_inline_data(ex, buffers[0].addr, buffers[0].length);
            else
                ibv_wr_set_inline_data_list(ex, (size_t)count, buffers);
        } else if (count == 1) {
            ibv_wr_set_sge(ex, list[0].lkey, list[0].addr, list[0].length);
        } else {
            ibv_wr_set_sge_list(ex, (size_t)count, list);
        }
    }
    long long t = now();
    if (abort)
        ibv_wr_abort(ex);
    else if (ibv_wr_complete(ex))
        die("wr_complete");
    return t;
}

static void post_receives(struct qp *qp, struct ibv_srq *srq, int n) {
    struct ibv_sge piece = {(uintptr_t)far.mr->addr, 4096, far.mr->lkey};
    struct ibv_recv_wr requests[64], *bad;
    for (int i = 0; i < n; i++)
        requests[i] = (struct ibv_recv_wr){
            .wr_id = (uint64_t)i, .next = i + 1 < n ? &requests[i + 1] : NULL, .sg_list = &piece, .num_sge = 1};
    if (srq ? ibv_post_srq_recv(srq, requests, &bad) : ibv_post_recv(qp->qp, requests, &bad))
        die("post_recv");
    if (!srq)
        qp->done.recv_wrs += n;
    qp->receives += n;
}

static int consumes(enum ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// Runs a scenario; returns 0 when all that was signalled completed.
static int run(const struct scenario *given) {
    struct scenario what = *given;
    what.list = what.list ? what.list : 1;
    what.signal_every = what.signal_every ? what.signal_every : 1;
    what.poll = what.poll ? what.poll : 4;
    what.qps = what.qps ? what.qps : 1;
    struct ibv_cq *near_sends = new_queue(&near, what.extended_cq), *near_receives = new_queue(&near, 0);
    struct ibv_cq *far_queue = new_queue(&far, 0);
    struct ibv_srq *srq = NULL;
    if (what.shared_receives) {
        struct ibv_srq_init_attr attributes = {.attr = {.max_wr = 256, .max_sge = 1}};
        srq = ibv_create_srq(far.pd, &attributes);
        if (!srq)
            die("create_srq");
    }
    struct qp *from[MOST_QPS], *to[MOST_QPS];
    for (int i = 0; i < what.qps; i++) {
        from[i] = new_qp(given, &near, near_sends, near_receives, NULL, what.extended);
        to[i] = new_qp(given, &far, far_queue, far_queue, srq, 0);
        connect_qp(from[i], &near, to[i], &far);
        connect_qp(to[i], &far, from[i], &near);
        long receives = consumes(what.opcode) ? (long)what.posts * what.list / what.qps : what.receive_list;
        for (long posted = 0; posted < receives; posted += what.receive_list)
            post_receives(to[i], srq, what.receive_list);
    }
    struct ibv_sge list[16];
    int n_pieces = pieces(&what, list);
    long bytes = (long)n_pieces * (n_pieces ? list[0].length : 0), total = (long)what.posts * what.list, w = 0;
    long since_signalled[MOST_QPS] = {0};
    long long deadline = now() + 20000000000LL;
    for (int i = 0; i < what.posts; i++) {
        struct qp *qp = from[i % what.qps];
        uint64_t ids[64];
        int signal[64];
        uint32_t rkeys[64];
        while (qp->free_wrs < what.list || (i && !what.bad && what.poll < 8 && qp->free_wrs < DEPTH / 2)) {
            poll_queue(&near, near_sends, what.extended_cq, what.poll);
            poll_queue(&far, far_queue, 0, what.poll);
            if (now() > deadline)
                return fprintf(stderr, "%s: no completion in time\n", what.name), 1;
        }
        for (int k = 0; k < what.list; k++, w++) {
            ids[k] = what.ids == CONSTANT ? 7 : what.ids == RING ? (uint64_t)w % DEPTH : 1000000u + (uint64_t)w;
            signal[k] = (w + 1) % what.signal_every == 0 || w + 1 == total;
            rkeys[k] = what.bad && w + 1 == what.bad ? far.mr->rkey ^ 0x5a5a5a00u : far.mr->rkey;
        }
        // A batch that is aborted counts nowhere; one of more than 16 requests does in part, which docs/limitations.md says.
        if (what.extended && i == what.posts / 2)
            post_calls(&what, qp->qp, what.list < 16 ? what.list : 16, ids, signal, rkeys, 1);
        long long t = now();
        if (what.extended)
            t = post_calls(&what, qp->qp, what.list, ids, signal, rkeys, 0);
        else
            post_list(&what, qp->qp, what.list, ids, signal, rkeys);
        qp->done.posts++;
        qp->free_wrs -= what.list;
        long *since = &since_signalled[i % what.qps];
        for (int k = 0; k < what.list; k++) {
            qp->done.wrs++;
            qp->done.bytes += bytes;
            qp->done.opcodes[what.opcode]++;
            qp->done.size_log2[log2_of((unsigned long long)bytes)]++;
            ++*since;
            if (signal[k]) {
                qp->done.signaled++;
                qp->outstanding[qp->last++ % DEPTH] = (struct signalled){t, *since};
                *since = 0;
            }
        }
        if (what.poll < 32)
            poll_queue(&near, near_sends, what.extended_cq, what.poll);
    }
    // With an error nobody can tell how many completions come: the queues are polled until none has come for a while.
    long long last = now();
    for (;;) {
        long open = 0, received = 0, receives = 0;
        for (int i = 0; i < what.qps; i++) {
            open += from[i]->last - from[i]->first;
            received += to[i]->done.completions;
            receives += to[i]->receives;
        }
        if (!what.bad && !open && (received == receives || !consumes(what.opcode)))
            return 0;
        if (poll_queue(&near, near_sends, what.extended_cq, what.poll) + poll_queue(&far, far_queue, 0, what.poll))
            last = now();
        if (what.bad && now() - last > 500000000LL)
            return from[0]->done.vendor_err < 0;
        if (now() > deadline)
            return fprintf(stderr, "%s: no completion in time: %ld open, %ld of %ld received\n", what.name, open, received,
                           receives), 1;
    }
}

static void numbers(const char *name, const long *of, int n) {
    printf(",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        printf("%s%ld", i ? "," : "", of[i]);
    printf("]");
}

static void tell(const struct qp *qp) {
    const struct account *done = &qp->done;
    printf("{\"scenario\":\"%s\",\"end\":\"%s\",\"device\":\"%s\",\"qpn\":%u,\"pid\":%d,\"posts\":%ld,\"wrs\":%ld,\"bytes\":%ld,"
           "\"signaled\":%ld,\"recv_wrs\":%ld,\"completions\":%ld,\"vendor_err\":%ld",
           qp->scenario, qp->end, qp->device, qp->qp->qp_num, getpid(), done->posts, done->wrs, done->bytes, done->signaled,
           done->recv_wrs, done->completions, done->vendor_err);
    numbers("opcodes", done->opcodes, OPCODES);
    numbers("errors", done->errors, STATUSES);
    numbers("size_log2", done->size_log2, SIZES);
    numbers("latency_log2_ns", done->latency, LATENCIES);
    printf("}\n");
}

static void warm(void) {
    static const struct scenario what = {.name = "warm"};
    struct ibv_cq *plain = new_queue(&near, 0), *extended = new_queue(&near, 1), *far_queue = new_queue(&far, 0);
    struct qp *from = new_qp(&what, &near, extended, plain, NULL, 1), *to = new_qp(&what, &far, far_queue, far_queue, NULL, 0);
    connect_qp(from, &near, to, &far);
    connect_qp(to, &far, from, &near);
    sleep(60);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: verbs DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [SCENARIO…]\n");
        return 2;
    }
    near = (struct device){.name = argv[1], .gid_index = atoi(argv[2])};
    far = (struct device){.name = argv[3], .gid_index = atoi(argv[4])};
    open_device(&near);
    open_device(&far);
    int failed = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        int wanted = argc == 5;
        for (int k = 5; k < argc; k++)
            wanted |= !strcmp(argv[k], scenarios[i].name);
        if (wanted && run(&scenarios[i])) {
            fprintf(stderr, "%s failed\n", scenarios[i].name);
            failed = 1;
        }
    }
    if (argc > 5 && !strcmp(argv[5], "warm"))
        warm();
    for (int i = 0; i < qps; i++)
        tell(all[i]);
    fflush(stdout);
    return failed;
}
