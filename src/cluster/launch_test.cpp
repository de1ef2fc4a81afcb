#include "cluster/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/plain/error.h"
#include "cluster/assignment.h"

namespace evenkeel::cluster {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_in(const Variables& variables, const ClusterOptions& options = {}) {
  return find_launch(options, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

const Variables kMaster = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
Variables with(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}
const Variables kTorchrun = with({{"RANK", "2"}, {"WORLD_SIZE", "3"}}, kMaster);
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
const Variables kPmi = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}};
const Variables kSlurm = {{"SLURM_PROCID", "2"},
                          {"SLURM_STEP_NUM_TASKS", "3"},
                          {"SLURM_STEP_NODELIST", "gpu[07-09,12],login1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "1"}};

TEST(Launch, DefaultsToOneRank) {
  EXPECT_EQ(launch_in({}).size, 1);
  EXPECT_EQ(launch_in(kMaster).size, 1);
  EXPECT_EQ(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).size, 1);
  EXPECT_EQ(launch_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size, 1) << "a batch script is no rank";
}

TEST(Launch, ReadsTheVariablesOfEveryLauncher) {
  const auto read = [](const Variables& variables, const char* name, const char* host, uint16_t port) {
    const auto launch = launch_in(variables);
    EXPECT_EQ(launch.rank, 2) << name;
    EXPECT_EQ(launch.size, 3) << name;
    EXPECT_EQ(launch.launcher, name);
    EXPECT_EQ(launch.store.host, host) << name;
    EXPECT_EQ(launch.store.port, port) << name;
    EXPECT_FALSE(launch.store.here) << name;
  };
  read(kTorchrun, "torchrun", "node1", 29500);
  read(with(kOpenMpi, kMaster), "Open MPI", "node1", 29500);
  read(with(kPmi, kMaster), "PMI", "node1", 29500);
  read(kSlurm, "Slurm", "gpu07", 20'000 + 77 * 16 + 1);
  read(with(kSlurm, kTorchrun), "torchrun", "node1", 29500);
  read(with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, kTorchrun), "torchrun", "node1", 29500);
}

TEST(Launch, APortOfAnySlurmJobIsAnUnprivilegedOne) {
  const auto port = [](const char* job) {
    auto variables = kSlurm;
    variables["SLURM_JOB_ID"] = job;
    return launch_in(variables).store.port;
  };
  EXPECT_EQ(port("134217727"), 20'000 + (134'217'727 * int64_t{16} + 1) % 20'000);
  EXPECT_EQ(port("134217728"), 20'000 + (134'217'728 * int64_t{16} + 1) % 20'000);
  EXPECT_EQ(port("2147483647"), 20'000 + (2'147'483'647 * int64_t{16} + 1) % 20'000);
}

TEST(Launch, TheConfigOverridesVariables) {
  ClusterOptions options;
  options.rank = 0, options.size = 2, options.store = "10.0.0.1:4000";
  const auto launch = launch_in(kTorchrun, options);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.size, 2);
  EXPECT_EQ(launch.store.host, "10.0.0.1");
  EXPECT_EQ(launch.store.port, 4000);
  EXPECT_TRUE(launch.store.here);
}

TEST(Launch, AStoreMayHaveAnIpv6Address) {
  ClusterOptions options;
  options.rank = 0, options.size = 2, options.store = "[fd00::2]:4000";
  EXPECT_EQ(launch_in({}, options).store.host, "fd00::2");
  EXPECT_EQ(launch_in({}, options).store.port, 4000);
  auto variables = kTorchrun;
  for (const auto* address : {"fd00::3", "[fd00::3]"}) {
    variables["MASTER_ADDR"] = address;
    EXPECT_EQ(launch_in(variables).store.host, "fd00::3");
  }
}

TEST(Launch, TorchrunsAgentMayHoldTheStoreAndCountsAttempts) {
  auto variables = kTorchrun;
  variables["RANK"] = "0";
  EXPECT_TRUE(launch_in(variables).store.here);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables["TORCHELASTIC_RESTART_COUNT"] = "3";
  EXPECT_FALSE(launch_in(variables).store.here);
  EXPECT_EQ(launch_in(variables).attempt, "3");
}

TEST(Launch, RefusesInvalidOrContradictoryVariables) {
  const auto refused = [](const Variables& variables, const char* word, const ClusterOptions& options = {}) {
    try {
      launch_in(variables, options);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kConfig);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused({{"RANK", "1"}}, "WORLD_SIZE is not");
  refused({{"PMI_SIZE", "2"}}, "PMI_RANK is not");
  refused({{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK is \"one\"");
  refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "rank 2 of 2");
  refused(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, kTorchrun), "torchrun says rank 2 of 3, PMI says 1 of 2");
  refused(kOpenMpi, "nothing says where rank 0 is");
  refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
          "MASTER_PORT is 70000, expected a port of 1 to 65535");
  ClusterOptions half;
  half.rank = 1;
  refused({}, "both or neither", half);
  half.size = 2;
  refused({}, "where rank 0 is", half);
  half.store = "nowhere";
  refused({}, "cluster.store is nowhere, expected HOST:PORT", half);
  half.store = "http://node07:4000";
  refused({}, "cluster.store is http://node07:4000, expected HOST:PORT", half);
  half.store = "::1:4000";
  refused({}, "an IPv6 address in brackets", half);
}

TEST(Launch, ReadsTheFirstHostOfAList) {
  for (const auto& [list, host] : Variables{{"node7", "node7"},
                                            {"a,b", "a"},
                                            {"node[1-3]", "node1"},
                                            {"node[04,07-09]x,b", "node04x"},
                                            {"n[12]", "n12"}})
    EXPECT_EQ(first_host(list), host);
  EXPECT_THROW(first_host("node[1"), Error);
}

TEST(Launch, WarnsOfMoreThreadsThanCores) {
  EXPECT_EQ(threads_warning(2, 2, 1, "torchrun"), "");
  EXPECT_NE(threads_warning(2, 1, 1, "Open MPI").find("--bind-to none"), std::string::npos);
  EXPECT_NE(threads_warning(1, 2, 3, "--ranks").find("3 ranks of 1 threads"), std::string::npos);
}

TEST(Deal, GivesTheLargestFirstToTheLeastLoadedRank) {
  const std::vector<double> costs = {3, 9, 1, 4, 4};
  using Shares = std::vector<std::vector<size_t>>;
  EXPECT_EQ(assign_by_cost(costs, 1), (Shares{{1, 3, 4, 0, 2}}));
  EXPECT_EQ(assign_by_cost(costs, 2), (Shares{{1, 2}, {3, 4, 0}}));
  EXPECT_EQ(assign_by_cost(costs, 7), (Shares{{1}, {3}, {4}, {0}, {2}, {}, {}}));
  EXPECT_EQ(assign_by_cost({}, 2), (Shares{{}, {}}));
}

}  // namespace
}  // namespace evenkeel::cluster
