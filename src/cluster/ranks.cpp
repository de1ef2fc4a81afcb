#include "cluster/ranks.h"

#include <ios>

#include "base/plain/log.h"
#include "base/system/machine.h"
#include "cluster/cluster_fabric.h"
#include "cluster/identity.h"
#include "cluster/scratch.h"
#include "cluster/worker.h"
#include "fed/run/make_experiment.h"
#include "fed/store/run_files.h"

namespace evenkeel::cluster {
namespace {

constexpr const char* kConfigKey = "config";

/// Runs `work`. If it fails, the reason is reported to the other ranks.
template <typename Work>
void telling(ProcessGroup& member, const Work& work) {
  try {
    work();
  } catch (const Interrupted& interrupted) {
    member.tell_stop(interrupted.what());
    throw;
  } catch (const std::ios_base::failure&) {  // of rank 0, which alone writes to stdout
    member.tell_stop("nobody reads standard output any more");
    throw;
  } catch (const std::exception& error) {
    member.tell(concat("rank ", member.rank(), ": ", error.what()));
    throw;
  }
}

void warn_of_threads(const Launch& launch, int64_t threads) {
  const int local_ranks = launch.launcher == "--ranks" ? launch.size : 1;
  const auto text = threads_warning(threads, machine::processors(), local_ranks, launch.launcher);
  if (!text.empty()) log::warning("[cluster] ", text);
}

/// Returns the config of rank 0. \throws kConfig naming the keys in which the request of this rank differs
fed::RunConfig config_of_leader(const std::string& text, const fed::RunRequest& request) {
  constexpr const char* kPlace = "the config of rank 0";
  const Json json = parse_json(text, kPlace);
  const JsonView view(json, kPlace);
  const auto read = [&](const char* key) {
    return fed::ExperimentConfig::read(config::Table::parse(view.at(key).string(), kPlace));
  };
  const auto then = read("asked");
  const auto config = fed::RunConfig::of_settled(read("config"), kPlace);
  const auto changes = fed::changes_of(request.config(view.at("settings").strings()), then, config);
  EK_CHECK(changes.empty(), kConfig,
           "this rank is asked for another run than rank 0: ", join(fed::lines_of(changes), "; "));
  return config;
}

}  // namespace

void lead(const Launch& launch, const ClusterOptions& options, const OpenRun& open, const StopRequest& stop,
          const std::function<void(const fed::Run& run, const std::vector<scoring::TaskScore>& scores)>& conclude) {
  ProcessGroup member(launch, options);
  telling(member, [&] {
    auto run = open({.on_config =
                         [&](const fed::RunConfig& config, const fed::BegunRequest& begun) {
                           warn_of_threads(launch, config->threads);
                           member.post(kConfigKey, OrderedJson{{"config", config->text()},
                                                               {"settings", begun.settings},
                                                               {"asked", begun.config.text()}}
                                                       .dump());
                         },
                     .on_experiment = [&](const fed::Experiment& experiment) { meet(member, experiment); }});
    member.form_group();
    log::info("[cluster] ", launch.size, " ranks, started by ", launch.launcher);
    ClusterFabric fabric(member, run.experiment, run.folder.path() / fed::run_file("cluster.jsonl"));
    const auto scores = fed::complete_run(run.experiment.server, fabric, run.folder, stop);
    fabric.end();
    conclude(run, scores);
  });
}

void run_worker(const Launch& launch, const ClusterOptions& options, const fed::RunRequest& request,
                const StopRequest& stop) {
  log::set_level(log::Level::kError);
  ProcessGroup member(launch, options);
  telling(member, [&] {
    const Scratch scratch(options);
    const auto config = config_of_leader(member.wait_for(kConfigKey), request);
    auto experiment = fed::make_experiment(config, fed::Purpose::kTrain);
    meet(member, experiment);
    member.form_group();
    run_worker(member, experiment, scratch, stop);
  });
}

}  // namespace evenkeel::cluster
