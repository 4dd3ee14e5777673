/* A stand-in for NVIDIA's library, as far as the sensors ask it, steered by a file that FAKE_NVML names. Lines of the file:
 *   gpus N            how many cards (2)              init E        opening fails with error E
 *   lost I            card I fell off the bus         unknown I     card I answers error 999
 *   gone I            card I is not counted any more: those behind it move up
 *   hang I MS         every call on card I takes MS   crash I       every call on card I is a SIGSEGV
 *   fails NAME        that function is not supported  set NAME V    util, temp, used_mb, reasons, power_mw, total0, v1, junk
 * The file is read again when it has changed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, LOST = 15, BAD_VERSION = 25, UNKNOWN = 999 };
typedef unsigned int u32;
typedef unsigned long long u64;

static struct state {
    int gpus, init, lost, unknown, gone, hang, hang_ms, crash, n_fails;
    long util, temp, used_mb, reasons, power_mw, total0, v1, junk;
    char fails[32][64];
} now;
static int is_open;

static void load(void) {
    static struct timespec seen;
    static int loaded;
    const char *path = getenv("FAKE_NVML");
    struct stat found;
    if (path == NULL || stat(path, &found) != 0) {
        found.st_mtim.tv_sec = 0;
        found.st_mtim.tv_nsec = 0;
    }
    if (loaded && seen.tv_sec == found.st_mtim.tv_sec && seen.tv_nsec == found.st_mtim.tv_nsec)
        return;
    seen = found.st_mtim;
    loaded = 1;
    now = (struct state){.gpus = 2, .lost = -1, .unknown = -1, .gone = -1, .hang = -1, .crash = -1};
    now.util = 12, now.temp = 54, now.used_mb = 4000, now.reasons = 1, now.power_mw = 210000;
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    char line[200], name[64];
    long value;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "gpus %d", &now.gpus), sscanf(line, "init %d", &now.init), sscanf(line, "lost %d", &now.lost);
        sscanf(line, "unknown %d", &now.unknown), sscanf(line, "gone %d", &now.gone), sscanf(line, "crash %d", &now.crash);
        sscanf(line, "hang %d %d", &now.hang, &now.hang_ms);
        if (sscanf(line, "fails %63s", name) == 1 && now.n_fails < 32)
            strcpy(now.fails[now.n_fails++], name);
        if (sscanf(line, "set %63s %ld", name, &value) == 2) {
            const char *names[] = {"util", "temp", "used_mb", "reasons", "power_mw", "total0", "v1", "junk"};
            long *values[] = {&now.util, &now.temp, &now.used_mb, &now.reasons, &now.power_mw, &now.total0, &now.v1, &now.junk};
            for (int i = 0; i < 8; i++)
                if (strcmp(name, names[i]) == 0)
                    *values[i] = value;
        }
    }
    if (file != NULL)
        fclose(file);
}

/* What a call on the card `handle` (its number + 1) comes to before it answers. */
static int gate(void *handle, const char *function) {
    int gpu = (int)(long)handle - 1;
    load();
    if (!is_open)
        return UNINITIALIZED;
    if (gpu < 0 || gpu >= now.gpus)
        return BAD_ARGUMENT;
    if (now.crash == gpu)
        raise(SIGSEGV);
    if (now.hang == gpu)
        usleep(now.hang_ms * 1000);
    if (now.lost == gpu || now.gone == gpu)
        return LOST;
    if (now.unknown == gpu)
        return UNKNOWN;
    for (int i = 0; i < now.n_fails; i++)
        if (strcmp(now.fails[i], function) == 0)
            return NOT_SUPPORTED;
    return OK;
}

#define GATE(name)                                                                                                                 \
    int result = gate(handle, #name);                                                                                              \
    if (result != OK)                                                                                                              \
        return result;
#define TELLS(name, value)                                                                                                         \
    int name(void *handle, u32 *out) {                                                                                             \
        GATE(name)                                                                                                                 \
        *out = (u32)(value);                                                                                                       \
        return OK;                                                                                                                 \
    }
#define TELLS_OF(name, value)                                                                                                      \
    int name(void *handle, u32 which, u32 *out) {                                                                                  \
        GATE(name)                                                                                                                 \
        *out = (u32)(value);                                                                                                       \
        return OK;                                                                                                                 \
    }

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    load();
    is_open = now.init == OK;
    return now.init;
}
int nvmlShutdown(void) { return is_open = 0; }
const char *nvmlErrorString(int error) { return error == LOST ? "GPU is lost" : "some error"; }
int nvmlSystemGetDriverVersion(char *out, u32 size) {
    snprintf(out, size, "580.00");
    return OK;
}
int nvmlDeviceGetCount_v2(u32 *out) {
    load();
    *out = (u32)(now.gpus - (now.gone >= 0));
    return is_open ? OK : UNINITIALIZED;
}
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **out) {
    load();
    long gpu = (long)index + (now.gone >= 0 && (int)index >= now.gone);
    *out = (void *)(gpu + 1);
    return gate(*out, "nvmlDeviceGetHandleByIndex_v2");
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    u32 number = 0;
    sscanf(bus, "%*x:%x", &number);
    *out = (void *)(long)number;
    return gate(*out, "nvmlDeviceGetHandleByPciBusId_v2");
}
int nvmlDeviceGetName(void *handle, char *out, u32 size) {
    GATE(nvmlDeviceGetName)
    snprintf(out, size, "NVIDIA GeForce RTX 4090");
    return OK;
}
int nvmlDeviceGetUUID(void *handle, char *out, u32 size) {
    GATE(nvmlDeviceGetUUID)
    snprintf(out, size, "GPU-00000000-0000-0000-0000-00000000000%ld", (long)handle - 1);
    return OK;
}
struct pci {
    char legacy[16];
    u32 domain, bus, device, id, subsystem;
    char address[32];
};
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *out) {
    GATE(nvmlDeviceGetPciInfo_v3)
    memset(out, 0, sizeof *out);
    snprintf(out->address, sizeof out->address, "00000000:%02lX:00.0", (long)handle);
    return OK;
}
struct memory {
    u64 total, free, used;
};
struct memory_v2 {
    u32 version;
    u64 total, reserved, free, used;
};
static u64 total(void) { return now.total0 ? 0 : 24564ULL << 20; }
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *out) {
    GATE(nvmlDeviceGetMemoryInfo)
    *out = (struct memory){total(), total() - ((u64)(now.used_mb + 388) << 20), (u64)(now.used_mb + 388) << 20};
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out) {
    GATE(nvmlDeviceGetMemoryInfo_v2)
    if (now.v1 || out->version != (sizeof *out | 2u << 24))
        return BAD_VERSION;
    out->total = total(), out->reserved = 388ULL << 20, out->used = (u64)now.used_mb << 20;
    out->free = out->total - out->used - out->reserved;
    return OK;
}
int nvmlDeviceGetUtilizationRates(void *handle, u32 *out) {
    GATE(nvmlDeviceGetUtilizationRates)
    out[0] = now.junk ? 4294967295u : (u32)now.util;
    out[1] = (u32)now.util / 2;
    return OK;
}
TELLS_OF(nvmlDeviceGetTemperature, which ? 0 : now.temp)
int nvmlDeviceGetTemperatureThreshold(void *handle, u32 which, u32 *out) {
    GATE(nvmlDeviceGetTemperatureThreshold)
    *out = which == 0 ? 100 : 97;
    return which <= 1 ? OK : NOT_SUPPORTED;
}
TELLS(nvmlDeviceGetPowerUsage, now.power_mw)
TELLS(nvmlDeviceGetEnforcedPowerLimit, 450000)
TELLS(nvmlDeviceGetPowerManagementDefaultLimit, 450000)
TELLS(nvmlDeviceGetNumFans, 2)
TELLS(nvmlDeviceGetFanSpeed, 43)
TELLS_OF(nvmlDeviceGetFanSpeed_v2, 43 + which)
TELLS_OF(nvmlDeviceGetClockInfo, which == 2 ? 10501 : 2520)
TELLS_OF(nvmlDeviceGetMaxClockInfo, which == 2 ? 10501 : 3105)
TELLS(nvmlDeviceGetCurrPcieLinkGeneration, 4)
TELLS(nvmlDeviceGetCurrPcieLinkWidth, 16)
TELLS(nvmlDeviceGetMaxPcieLinkGeneration, 4)
TELLS(nvmlDeviceGetMaxPcieLinkWidth, 16)
TELLS(nvmlDeviceGetGpuMaxPcieLinkGeneration, 4)
TELLS(nvmlDeviceGetPcieReplayCounter, 3)
TELLS(nvmlDeviceGetPerformanceState, now.util > 5 ? 2 : 8)
int nvmlDeviceGetPcieThroughput(void *handle, u32 which, u32 *out) {
    GATE(nvmlDeviceGetPcieThroughput)
    usleep(20000);
    *out = which ? 150000 : 90000;
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) {
    GATE(nvmlDeviceGetCurrentClocksEventReasons)
    *out = (u64)now.reasons;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, u64 *out) {
    GATE(nvmlDeviceGetCurrentClocksThrottleReasons)
    *out = (u64)now.reasons;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(void *handle, u32 type, u32 counter, u64 *out) {
    GATE(nvmlDeviceGetTotalEccErrors)
    (void)type, (void)counter, (void)out;
    return NOT_SUPPORTED;
}
struct process {
    u32 pid;
    u64 used;
    u32 instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *n, struct process *out) {
    GATE(nvmlDeviceGetComputeRunningProcesses_v3)
    if (*n < 1 || out == NULL)
        return *n = 1, TOO_SMALL;
    *n = 1;
    *out = (struct process){(u32)getpid(), (u64)now.used_mb << 20, ~0u, ~0u};
    return OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, u32 *n, struct process *out) {
    GATE(nvmlDeviceGetGraphicsRunningProcesses_v3)
    (void)out;
    *n = 0;
    return OK;
}
struct field {
    u32 id, scope;
    long long time, latency;
    u32 type, result;
    union {
        double d;
        u32 u;
        u64 l;
    } value;
};
int nvmlDeviceGetFieldValues(void *handle, int n, struct field *out) {
    GATE(nvmlDeviceGetFieldValues)
    for (int i = 0; i < n; i++)
        out[i].result = NOT_SUPPORTED;
    return OK;
}
