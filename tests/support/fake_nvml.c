/* A stand-in for libnvidia-ml.so.1: two GPUs, with the names and signatures of the real one.
   The number in MODE_FILE is the error that it gives out. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } busy_t;
static int mode(void)
{
    FILE *f = fopen(MODE_FILE, "r");
    int n = 0;
    if (f) { fscanf(f, "%d", &n); fclose(f); }
    return n;
}

static long which(void *d)
{
    return (long)d - 100;
}

int nvmlInit_v2(void)
{
#ifdef HANGS
    for (;;)
        pause();
#endif
    return mode() == 18 ? 18 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *b, unsigned n)
{
    snprintf(b, n, "580.1");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d)
{
    if (i && mode() == 15) return 15;
    *d = (void *)(long)(100 + i);
    return 0;
}

int nvmlDeviceGetUUID(void *d, char *b, unsigned n)
{
    snprintf(b, n, "GPU-%ld", which(d));
    return 0;
}

int nvmlDeviceGetName(void *d, char *b, unsigned n)
{
    snprintf(b, n, "NVIDIA Test");
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *d, pci_t *p)
{
    memset(p, 0, sizeof *p);
    p->bus = 0x18 + which(d);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *d, memory_t *m)
{
    if (mode() == 16 && which(d)) return 16;
    m->total = 100ULL << 30;
    m->used = 5ULL << 30;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *d, busy_t *b)
{
    b->gpu = 42;
    b->memory = 1;
    return 0;
}

int nvmlDeviceGetTemperature(void *d, unsigned s, unsigned *t)
{
    if (s) return 2;
    *t = 61;
    return 0;
}

int nvmlDeviceGetTemperatureThreshold(void *d, unsigned s, unsigned *t)
{
    if (s != 1) return 2;
    *t = 89;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *d, unsigned *p)
{
    *p = 123456;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *p)
{
    return 3;
}

int nvmlDeviceGetTotalEccErrors(void *d, unsigned kind, unsigned since, unsigned long long *n)
{
    *n = kind ? 0 : 7;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r)
{
    *r = 0x1 | 0x4 | 0x40;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *n)
{
    *n = 1;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *n)
{
    *n = 5;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *n)
{
    *n = 16;
    return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *n)
{
    *n = 16;
    return 0;
}

int nvmlDeviceGetRemappedRows(void *d, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed)
{
    *c = *u = *failed = 0;
    *pending = 1;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *d, unsigned l, unsigned *s)
{
    if (l > 1) return 3;
    *s = l == 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned l, pci_t *p)
{
    memset(p, 0, sizeof *p);
    p->bus = 0x18 + !which(d);
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *d, void *o, unsigned *level)
{
    *level = 30;
    return 0;
}

typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;
static int events_left;
int nvmlEventSetCreate(void **set)
{
    *set = (void *)7;
    return 0;
}

int nvmlDeviceRegisterEvents(void *d, unsigned long long kinds, void *set)
{
    if (kinds != 8 || set != (void *)7)
        return 2;
    events_left = which(d) ? 1 : 0;
    return 0;
}

int nvmlEventSetWait_v2(void *set, event_t *e, unsigned wait_ms)
{
    if (!events_left || wait_ms)
        return 10;
    events_left--;
    e->device = (void *)101;
    e->type = 8;
    e->data = 79;
    return 0;
}
