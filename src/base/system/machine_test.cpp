#include "base/system/machine.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <limits>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

/// A simulated machine: 4000 MiB of which 3000 are free, four processors, no limit.
class Machine : public ::testing::Test {
 protected:
  Machine() {
    put("proc/meminfo", "MemTotal:        4096000 kB\nMemFree:          200000 kB\nMemAvailable:    3072000 kB\n");
    put("proc/self/status", "Name:\tevenkeel\nVmSize:\t  512000 kB\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,5\n");
    put("proc/self/limits",
        "Max data size             1000       unlimited            bytes\n"
        "Max address space         unlimited            unlimited            bytes\n");
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: An Engine 9000\nvmx flags\t: x\nflags\t\t: fpu avx2\n");
  }
  void put(const std::string& name, std::string_view content) {
    fs::create_directories((root() / name).parent_path());
    write_file_atomic(root() / name, content);
  }
  const fs::path& root() const { return folder_.path(); }
  machine::Memory memory() const { return machine::memory(root()); }

 private:
  const testing::TemporaryFolder folder_;
};

TEST_F(Machine, WithoutALimitFreeMemoryIsAvailable) {
  EXPECT_EQ(memory().physical, 4000 * kMebi);
  EXPECT_EQ(memory().available, 3000 * kMebi);
  EXPECT_EQ(memory().address_space, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(memory().limited_by, "free memory");
  EXPECT_EQ(machine::processors(root()), 4);
}

TEST_F(Machine, Cgroup2LimitMinusUsedMemoryIsAvailable) {
  put("proc/self/cgroup", "0::/outer/inner\n");
  put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put("sys/fs/cgroup/outer/memory.max", concat(1000 * kMebi, "\n"));
  put("sys/fs/cgroup/outer/memory.current", concat(500 * kMebi, "\n"));
  put("sys/fs/cgroup/outer/memory.stat", concat("anon 1\nfile 2\ninactive_file ", 200 * kMebi, "\n"));
  EXPECT_EQ(memory().available, 700 * kMebi);
  EXPECT_EQ(memory().limited_by, "control group");
}

TEST_F(Machine, Cgroup1LimitAppliesIfThePathIsTheHosts) {
  put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/path/of/the/host\n1:cpu,cpuacct:/a\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", concat(800 * kMebi, "\n"));
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", concat(900 * kMebi, "\n"));
  put("sys/fs/cgroup/memory/memory.stat", concat("total_inactive_file ", 300 * kMebi, "\n"));
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(memory().available, 200 * kMebi);
  EXPECT_EQ(machine::processors(root()), 2);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(memory().limited_by, "free memory");
  EXPECT_EQ(machine::processors(root()), 4);
}

TEST_F(Machine, AddressSpaceLimitMinusMappedMemoryIsAvailable) {
  put("proc/self/limits", concat("Max address space         ", 900 * kMebi, "           unlimited            bytes\n"));
  EXPECT_EQ(memory().address_space, 400 * kMebi);
  EXPECT_EQ(memory().available, 3000 * kMebi);
}

TEST_F(Machine, CpuQuotaIsRoundedUp) {
  put("proc/self/cgroup", "0::/box\n");
  put("sys/fs/cgroup/box/cpu.max", "50000 100000\n");
  EXPECT_EQ(machine::processors(root()), 1);
  put("sys/fs/cgroup/box/cpu.max", "max 100000\n");
  EXPECT_EQ(machine::processors(root()), 4);
}

TEST_F(Machine, CpuFieldsAreFoundByTheirWholeName) {
  EXPECT_EQ(machine::processor_field("model name", root()), "An Engine 9000");
  EXPECT_EQ(machine::processor_field("flags", root()), "fpu avx2");
  EXPECT_EQ(machine::processor_field("model", root()), "");
}

TEST_F(Machine, ThisMachineHasMemoryAndAProcessor) {
  EXPECT_GT(machine::memory().available, 0);
  EXPECT_LE(machine::memory().available, machine::memory().physical);
  EXPECT_GE(machine::processors(), 1);
}

TEST_F(Machine, FreeDiskSpaceIsThatOfTheNearestExistingFolder) {
  EXPECT_GT(machine::free_disk(root() / "not" / "made" / "yet"), 0);
  machine::require_disk(root() / "new", kMebi, "the model");
  try {
    machine::require_disk(root() / "new", int64_t{1} << 60, "the model");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), kIo);
    EXPECT_NE(text.find("/new: the model needs 1073741824.0 GiB, "), std::string::npos) << text;
  }
}

TEST_F(Machine, BytesAreFormattedInTheFittingUnit) {
  EXPECT_EQ(machine::bytes_text(13 * 1024 * kMebi + 100 * kMebi), "13.1 GiB");
  EXPECT_EQ(machine::bytes_text(kMebi + 1), "2 MiB");
}

}  // namespace
}  // namespace evenkeel
