#include "cluster/launch.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "base/plain/address.h"
#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::cluster {
namespace {

/// The environment variables in which a launcher gives rank and size.
struct Family {
  const char* name;
  const char* rank;
  const char* size;
};
constexpr std::array kFamilies = {Family{"torchrun", "RANK", "WORLD_SIZE"},
                                  Family{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  Family{"PMI", "PMI_RANK", "PMI_SIZE"}};
constexpr Family kSlurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};

/// The rank and size found for one launcher.
struct Found {
  const Family* family = nullptr;  ///< null: not found
  int rank = 0, size = 1;
};

int number_in(const std::string& text, const std::string& name, int least) {
  const auto value = parse_number<int>(text);
  EK_CHECK(value && *value >= least, kConfig, name, " is \"", text, "\", allowed: a number, ", least, " or more");
  return *value;
}

void check_place(std::string_view who, int rank, int size) {
  EK_CHECK(rank < size, kConfig, who, " says rank ", rank, " of ", size, ", allowed: 0 .. ", size - 1);
}

Found find(const Family& family, const Environment& environment) {
  const auto rank = environment(family.rank), size = environment(family.size);
  if (!rank && !size) return {};
  EK_CHECK(rank && size, kConfig, family.name, ": ", rank ? family.rank : family.size, " is set and ",
           rank ? family.size : family.rank, " is not; a rank needs both, and a run of one neither");
  const Found found{&family, number_in(*rank, family.rank, 0), number_in(*size, family.size, 1)};
  check_place(family.name, found.rank, found.size);
  return found;
}

/// Returns what the first launcher with set variables gives; the others must give the same values.
Found find_family(const Environment& environment) {
  Found first;
  for (const auto& family : kFamilies) {
    const auto found = find(family, environment);
    if (!found.family) continue;
    EK_CHECK(!first.family || (first.rank == found.rank && first.size == found.size), kConfig, first.family->name,
             " says rank ", first.rank, " of ", first.size, ", ", found.family->name, " says ", found.rank, " of ",
             found.size, ": start the run by one launcher, or say cluster.rank and cluster.size");
    if (!first.family) first = found;
  }
  if (first.family || !environment(kSlurm.size)) return first;
  return find(kSlurm, environment);
}

/// Returns a port that depends on the Slurm job and step, so that concurrent steps on a machine use different ports.
uint16_t port_of_step(const Environment& environment) {
  const auto number = [&](const char* name) -> int64_t {
    const auto text = environment(name);
    return text ? number_in(*text, name, 0) : 0;
  };
  return static_cast<uint16_t>(20'000 + (number("SLURM_JOB_ID") * 16 + number("SLURM_STEP_ID")) % 20'000);
}

Address address_of(const ClusterOptions& options, const std::string& launcher, const Environment& environment) {
  if (!options.store.empty()) return parse_address(options.store, "cluster.store");
  const auto host = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (host && port) return {parse_host(*host, "MASTER_ADDR"), parse_port(*port, "MASTER_PORT")};
  const auto nodes = environment("SLURM_STEP_NODELIST");
  if (launcher == kSlurm.name && nodes) return {first_host(*nodes), port_of_step(environment)};
  fail(kConfig, launcher,
       " starts several ranks, but nothing says where rank 0 is: set cluster.store = \"HOST:PORT\", or "
       "MASTER_ADDR and MASTER_PORT");
}

}  // namespace

Environment this_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

std::string first_host(const std::string& nodes) {
  const size_t end = nodes.find_first_of(",[");
  if (end == std::string::npos || nodes[end] == ',') return nodes.substr(0, end);
  const size_t last = nodes.find_first_of("-,]", end + 1);
  const size_t close = nodes.find(']', end);
  EK_CHECK(last != std::string::npos && close != std::string::npos, kConfig, "SLURM_STEP_NODELIST is \"", nodes,
           "\", which is no list of hosts; set cluster.store");
  const size_t comma = nodes.find(',', close);
  const size_t suffix = comma == std::string::npos ? nodes.size() : comma;
  return concat(nodes.substr(0, end), nodes.substr(end + 1, last - end - 1),
                nodes.substr(close + 1, suffix - close - 1));
}

Launch find_launch(const ClusterOptions& options, const Environment& environment) {
  EK_CHECK((options.rank < 0) == (options.size == 0), kConfig, "cluster.rank is ", options.rank, " and cluster.size ",
           options.size, ", allowed: both or neither");
  Launch launch;
  const auto found = options.size > 0 ? Found{} : find_family(environment);
  const bool by_config = options.size > 0;
  if (!by_config && !found.family) return launch;
  launch.launcher = by_config ? "the config" : found.family->name;
  launch.rank = by_config ? static_cast<int>(options.rank) : found.rank;
  launch.size = by_config ? static_cast<int>(options.size) : found.size;
  if (by_config) check_place("[cluster]", launch.rank, launch.size);
  if (launch.size == 1) return launch;
  const auto address = address_of(options, launch.launcher, environment);
  const bool of_torchrun = found.family == kFamilies.data();
  const bool agent_keeps_it =
      of_torchrun && options.store.empty() && environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  launch.store = {.host = address.host, .port = address.port, .here = launch.rank == 0 && !agent_keeps_it};
  launch.attempt = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return launch;
}

std::string threads_warning(int64_t threads, int64_t processors, int ranks_here, const std::string& launcher) {
  if (threads * ranks_here <= processors) return "";
  const std::string what =
      ranks_here > 1 ? concat(ranks_here, " ranks of ", threads, " threads each share ", processors, " processors")
                     : concat("threads = ", threads, ", but ", launcher, " leaves this rank ", processors,
                              processors == 1 ? " processor" : " processors");
  const bool binds = ranks_here == 1 && (launcher == "Open MPI" || launcher == "PMI");
  return concat(what, ": the bits are the same, it takes longer", binds ? " (mpirun --bind-to none)" : "");
}

}  // namespace evenkeel::cluster
