#include "cluster/heartbeat.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "cluster/rank_ends.h"

namespace evenkeel::cluster {
namespace {

constexpr std::chrono::milliseconds kBeat{100};
constexpr double kGrace = 5;  // seconds after a timeout until the process is ended, if a thread is blocked
constexpr std::string_view kStop = "stop ";

double seconds_of(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<RendezvousStore> store, Settings settings)
    : store_(std::move(store)), settings_(std::move(settings)) {}

void Heartbeat::start() {
  std::thread([this] { send_heartbeats(); }).detach();
  std::thread([this] { guard(); }).detach();
}

void Heartbeat::watch(Watch watch) {
  const std::scoped_lock lock(mutex_);
  std::erase(watch.ranks, settings_.rank);
  for (const int rank : watch.ranks) beats_[rank].last = Clock::now();
  watch_ = std::move(watch);
  failure_ = {};
}

Heartbeat::Watch Heartbeat::watch() const {
  const std::scoped_lock lock(mutex_);
  return watch_;
}

PeerFailure Heartbeat::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

double Heartbeat::silence(int rank) const {
  const std::scoped_lock lock(mutex_);
  const auto found = beats_.find(rank);
  return found == beats_.end() ? 0 : seconds_of(Clock::now() - found->second.last);
}

/// Records the first failure only; later ones are its consequences. A failure of an earlier group is ignored.
void Heartbeat::record(PeerFailure failure, int64_t group) {
  const std::scoped_lock lock(mutex_);
  if (failure_.kind == PeerFailure::Kind::kNone && watch_.group == group) failure_ = std::move(failure);
}

void Heartbeat::check_group() {
  store_->add(concat(settings_.heartbeat_prefix, settings_.rank), 1);
  const auto watch = this->watch();
  if (const auto message = store_->find(watch.failure_key)) {
    const bool stop = message->starts_with(kStop);
    record(
        {stop ? PeerFailure::Kind::kStop : PeerFailure::Kind::kLeft, stop ? message->substr(kStop.size()) : *message},
        watch.group);
  }
  if (store_->add(settings_.newest_group_key, 0) > watch.group)
    record({PeerFailure::Kind::kLost, "rank 0 calls for a new group"}, watch.group);
  for (const int rank : watch.ranks) check_rank(rank, watch.group);
}

void Heartbeat::check_rank(int rank, int64_t group) {
  const int64_t count = store_->add(concat(settings_.heartbeat_prefix, rank), 0);
  {
    const std::scoped_lock lock(mutex_);
    if (auto& beat = beats_[rank]; count != beat.count) beat = {count, Clock::now()};
  }
  const double silence_s = silence(rank), allowed_s = count == 0 ? settings_.start_timeout_s : settings_.timeout_s;
  if (silence_s > allowed_s)
    record(
        {PeerFailure::Kind::kLost, concat("rank ", rank, count == 0 ? " did not appear in " : " has been silent for ",
                                          static_cast<int64_t>(silence_s), " s")},
        group);
}

void Heartbeat::send_heartbeats() {
  for (;; std::this_thread::sleep_for(kBeat)) {
    try {
      check_group();
      last_pass_ = Clock::now().time_since_epoch().count();
    } catch (const std::exception& error) {
      record({PeerFailure::Kind::kLeft, concat("rank 0 is out of reach: ", error.what())}, watch().group);
      last_pass_ = Clock::now().time_since_epoch().count();
    }
  }
}

void Heartbeat::guard() {
  for (;; std::this_thread::sleep_for(kBeat)) {
    const auto since = Clock::now().time_since_epoch() - Clock::duration(last_pass_.load());
    if (guard_disabled_ || seconds_of(since) < settings_.timeout_s + kGrace) continue;
    const auto text = concat("rank ", settings_.rank, ": the store has not answered for ",
                             static_cast<int64_t>(seconds_of(since)), " s: rank 0 is gone or frozen");
    set_leaving_because_of_another(true);
    if (!tell_starter(Error(kIo, text))) log::error("[cluster] ", text, "; leaving");
    std::_Exit(1);
  }
}

}  // namespace evenkeel::cluster
