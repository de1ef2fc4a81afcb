#include "cluster/heartbeat.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/log.h"

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
  std::thread([this] { beat_for_ever(); }).detach();
  std::thread([this] { guard(); }).detach();
}

void Heartbeat::watch(Watch watch) {
  const std::scoped_lock lock(mutex_);
  std::erase(watch.ranks, settings_.rank);
  for (const int rank : watch.ranks) beats_[rank].last = Clock::now();
  watch_ = std::move(watch);
  trouble_ = {};
}

Heartbeat::Watch Heartbeat::watch() const {
  const std::scoped_lock lock(mutex_);
  return watch_;
}

PeerFailure Heartbeat::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

double Heartbeat::silence(int rank) const {
  const std::scoped_lock lock(mutex_);
  const auto found = beats_.find(rank);
  return found == beats_.end() ? 0 : seconds_of(Clock::now() - found->second.last);
}

/// Records the first failure only; later ones are its consequences. A failure of an earlier epoch is ignored.
void Heartbeat::raise(PeerFailure trouble, int64_t epoch) {
  const std::scoped_lock lock(mutex_);
  if (trouble_.kind == PeerFailure::Kind::kNone && watch_.epoch == epoch) trouble_ = std::move(trouble);
}

void Heartbeat::look() {
  store_->add(concat(settings_.beat, settings_.rank), 1);
  const auto watch = this->watch();
  if (const auto message = store_->find(watch.trouble_key)) {
    const bool stop = message->starts_with(kStop);
    raise({stop ? PeerFailure::Kind::kStop : PeerFailure::Kind::kLeft, stop ? message->substr(kStop.size()) : *message},
          watch.epoch);
  }
  if (store_->add(settings_.epoch, 0) > watch.epoch)
    raise({PeerFailure::Kind::kLost, "rank 0 calls for a new group"}, watch.epoch);
  for (const int rank : watch.ranks) look_at(rank, watch.epoch);
}

void Heartbeat::look_at(int rank, int64_t epoch) {
  const int64_t count = store_->add(concat(settings_.beat, rank), 0);
  {
    const std::scoped_lock lock(mutex_);
    if (auto& beat = beats_[rank]; count != beat.count) beat = {count, Clock::now()};
  }
  const double silence_s = silence(rank), allowed_s = count == 0 ? settings_.start_timeout_s : settings_.timeout_s;
  if (silence_s > allowed_s)
    raise({PeerFailure::Kind::kLost, concat("rank ", rank, count == 0 ? " did not appear in " : " has been silent for ",
                                            static_cast<int64_t>(silence_s), " s")},
          epoch);
}

void Heartbeat::beat_for_ever() {
  for (;; std::this_thread::sleep_for(kBeat)) {
    try {
      look();
      last_round_ = Clock::now().time_since_epoch().count();
    } catch (const std::exception& error) {
      raise({PeerFailure::Kind::kLeft, concat("rank 0 is out of reach: ", error.what())}, watch().epoch);
      last_round_ = Clock::now().time_since_epoch().count();
    }
  }
}

void Heartbeat::guard() {
  for (;; std::this_thread::sleep_for(kBeat)) {
    const auto since = Clock::now().time_since_epoch() - Clock::duration(last_round_.load());
    if (retired_ || seconds_of(since) < settings_.timeout_s + kGrace) continue;
    log::error("[cluster] rank ", settings_.rank, ": the store has not answered for ",
               static_cast<int64_t>(seconds_of(since)), " s: rank 0 is gone or frozen; leaving");
    std::_Exit(1);
  }
}

}  // namespace evenkeel::cluster
