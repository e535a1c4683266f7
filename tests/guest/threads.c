// link: -libverbs -lpthread
// threads DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [POSTS [PAUSE_US]]: two threads post to ONE queue pair of DEVICE,
// which is connected to one of PEER_DEVICE, while two other threads create and destroy queue pairs of DEVICE. Each post
// has one or two work requests of known size. At the end its own account, a line of JSON: {"pid","device","qpn",
// "peer_device","peer_qpn","posts","wrs","bytes","completions","errors","created","destroyed"}; created and destroyed
// count DEVICE's queue pairs, with the one that is posted to and, if the peer is on the same device, the peer.
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 64, SMALL = 256, LARGE = 4096 };

struct end {
    const char *device;
    int gid_index;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    union ibv_gid gid;
};

static struct end near, far;
static int posts_per_thread, pause_us;
static atomic_long posts, wrs, bytes, completions, errors, created, destroyed, free_slots = DEPTH;
static atomic_int posting = 1;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *queue) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    return ibv_create_qp(pd, &attributes);
}

static void open_end(struct end *end) {
    int count;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(devices[i]), end->device))
            end->context = ibv_open_device(devices[i]);
    if (!end->context)
        die(end->device);
    char *memory = aligned_alloc(4096, LARGE);
    end->pd = ibv_alloc_pd(end->context);
    end->cq = ibv_create_cq(end->context, 4 * DEPTH, NULL, NULL, 0);
    if (!memory || !end->pd || !end->cq || ibv_query_gid(end->context, 1, end->gid_index, &end->gid))
        die("set-up");
    end->mr = ibv_reg_mr(end->pd, memory, LARGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    end->qp = new_qp(end->pd, end->cq);
    if (!end->mr || !end->qp)
        die("set-up");
}

static void connect_end(const struct end *end, const struct end *to) {
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    if (ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("INIT");
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1,
                    .grh = {.dgid = to->gid, .sgid_index = (uint8_t)end->gid_index, .hop_limit = 64}}};
    if (ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("RTR");
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};
    if (ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_MAX_QP_RD_ATOMIC))
        die("RTS");
}

// Takes room for `n` work requests in the send queue, waiting for completions as long as there is none.
static void take_slots(int n) {
    for (;;) {
        long have = atomic_load(&free_slots);
        if (have >= n && atomic_compare_exchange_weak(&free_slots, &have, have - n))
            return;
        if (have < n)
            usleep(50);
    }
}

static void *post(void *unused) {
    (void)unused;
    for (int i = 0; i < posts_per_thread; i++) {
        int n = 1 + i % 2;
        struct ibv_sge pieces[2] = {{(uintptr_t)near.mr->addr, SMALL, near.mr->lkey},
                                    {(uintptr_t)near.mr->addr, LARGE, near.mr->lkey}};
        struct ibv_send_wr requests[2], *bad;
        memset(requests, 0, sizeof requests);
        for (int k = 0; k < n; k++) {
            requests[k].sg_list = &pieces[k];
            requests[k].num_sge = 1;
            requests[k].opcode = IBV_WR_RDMA_WRITE;
            requests[k].wr.rdma.remote_addr = (uintptr_t)far.mr->addr;
            requests[k].wr.rdma.rkey = far.mr->rkey;
            requests[k].next = k + 1 < n ? &requests[k + 1] : NULL;
        }
        take_slots(n);
        if (ibv_post_send(near.qp, requests, &bad))
            die("post_send");
        posts++;
        wrs += n;
        bytes += n == 1 ? SMALL : SMALL + LARGE;
        if (pause_us)
            usleep((useconds_t)pause_us);
    }
    return NULL;
}

static void *poll_completions(void *unused) {
    (void)unused;
    struct ibv_wc done[16];
    while (atomic_load(&posting) || completions < wrs) {
        int n = ibv_poll_cq(near.cq, 16, done);
        if (n < 0)
            die("poll_cq");
        for (int i = 0; i < n; i++)
            errors += done[i].status != IBV_WC_SUCCESS;
        completions += n;
        free_slots += n;
        if (!n)
            usleep(50);
    }
    return NULL;
}

static void *churn(void *unused) {
    (void)unused;
    struct ibv_cq *queue = ibv_create_cq(near.context, DEPTH, NULL, NULL, 0);
    if (!queue)
        die("create_cq");
    while (atomic_load(&posting)) {
        struct ibv_qp *other = new_qp(near.pd, queue);
        if (!other)
            die("create_qp");
        created++;
        if (ibv_destroy_qp(other))
            die("destroy_qp");
        destroyed++;
        usleep(1000);
    }
    ibv_destroy_cq(queue);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: threads DEVICE GID_INDEX PEER_DEVICE PEER_GID_INDEX [POSTS [PAUSE_US]]\n");
        return 2;
    }
    near = (struct end){.device = argv[1], .gid_index = atoi(argv[2])};
    far = (struct end){.device = argv[3], .gid_index = atoi(argv[4])};
    posts_per_thread = (argc > 5 ? atoi(argv[5]) : 1000) / 2;
    pause_us = argc > 6 ? atoi(argv[6]) : 0;
    open_end(&near);
    open_end(&far);
    int ours = 1 + !strcmp(near.device, far.device);
    created += ours;
    connect_end(&near, &far);
    connect_end(&far, &near);

    pthread_t posters[2], churners[2], poller;
    pthread_create(&poller, NULL, poll_completions, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_create(&churners[i], NULL, churn, NULL);
        pthread_create(&posters[i], NULL, post, NULL);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(posters[i], NULL);
    atomic_store(&posting, 0);
    pthread_join(poller, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(churners[i], NULL);
    unsigned qpn = near.qp->qp_num, peer_qpn = far.qp->qp_num;
    // Left open for a while, so that a watcher that samples sees the final numbers of a living queue pair.
    sleep(2);
    if (ibv_destroy_qp(near.qp) || ibv_destroy_qp(far.qp))
        die("destroy_qp");
    destroyed += ours;
    printf("{\"pid\":%d,\"device\":\"%s\",\"qpn\":%u,\"peer_device\":\"%s\",\"peer_qpn\":%u,\"posts\":%ld,\"wrs\":%ld,\"bytes\":%ld,"
           "\"completions\":%ld,\"errors\":%ld,\"created\":%ld,\"destroyed\":%ld}\n",
           getpid(), near.device, qpn, far.device, peer_qpn, posts, wrs, bytes, completions, errors, created, destroyed);
    return errors ? 1 : 0;
}
