#include "cluster/process_group.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "cluster/heartbeat.h"

namespace evenkeel::cluster {
namespace {

constexpr const char* kEpoch = "epoch";
constexpr const char* kTrouble = "trouble";

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::string key_of(const std::string& attempt, int64_t epoch, const std::string& key) {
  return epoch < 0 ? concat("evenkeel/", attempt, "/", key) : concat("evenkeel/", attempt, "/", epoch, "/", key);
}

Member::Member(const Launch& launch, const ClusterOptions& options)
    : launch_(launch), options_(options), group_(nullptr), members_(first_ranks(launch.size)) {
  board_ = make_board(launch_.board, options_.start_timeout);
  auto own = launch_.board;
  own.here = false;
  own.listening = -1;
  pulse_ = new Pulse(make_board(own, options_.start_timeout), {.rank = rank(),
                                                               .beat = root_key("beat/"),
                                                               .epoch = root_key(kEpoch),
                                                               .timeout_s = options_.timeout,
                                                               .start_timeout_s = options_.start_timeout});
  begin_watch();
  pulse_->start();
}

void Member::begin_watch() {
  pulse_->watch({.ranks = leads() ? members_ : std::vector<int>{0}, .epoch = epoch_, .trouble_key = own_key(kTrouble)});
}

int Member::seat() const {
  return static_cast<int>(std::find(members_.begin(), members_.end(), rank()) - members_.begin());
}

template <typename Work>
auto Member::ask_board(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw error.with_context(concat("rank ", rank()));
  }
}

void Member::post(const std::string& key, const std::string& value) {
  ask_board([&] { board_->set(own_key(key), value); });
}

std::optional<std::string> Member::read(const std::string& key) {
  return ask_board([&] { return board_->find(own_key(key)); });
}

std::string Member::wait_for(const std::string& key) {
  for (;; pause()) {
    if (auto value = read(key)) return *value;
    check();
  }
}

void Member::check() {
  const auto trouble = pulse_->trouble();
  switch (trouble.kind) {
    case Trouble::Kind::kNone:
      return;
    case Trouble::Kind::kStop:
      throw Interrupted(trouble.text);
    case Trouble::Kind::kLost:
      broken_ = true;
      fail(kIo, "rank ", rank(), ": ", trouble.text);
    case Trouble::Kind::kLeft:
      fail(kIo, "rank ", rank(), " leaves because of another: ", trouble.text);
  }
}

void Member::pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

void Member::tell(const std::string& trouble) noexcept {
  try {
    if (read(kTrouble)) return;
    post(kTrouble, trouble);
    if (leads()) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  } catch (const std::exception& error) {
    log::warning("[cluster] rank ", rank(), " cannot say why it leaves: ", error.what());
  }
}

void Member::tell_stop(const std::string& why) noexcept { tell(concat("stop ", why)); }

void Member::form_group() {
  group_ = nullptr;
  if (members_.size() < 2) return;
  group_ = make_group(*board_, launch_.board,
                      {.name = own_key("gloo/"),
                       .rank = seat(),
                       .size = static_cast<int>(members_.size()),
                       .device = options_.device,
                       .timeout_s = options_.timeout})
               .release();
}

void Member::together(const std::string& what, const std::function<void(Collective& group)>& work) {
  check();
  try {
    work(*group_);
  } catch (const Error& error) {
    broken_ = true;
    throw error.with_context(concat("rank ", rank(), ", ", what));
  }
}

int64_t Member::announced_epoch() { return board_->add(root_key(kEpoch), 0); }

/// All who come, but those who are silent: nobody else is waited for.
std::vector<int> Member::gather(int64_t next) {
  board_->add(root_key(kEpoch), next - announced_epoch());
  std::vector<int> present{0};
  for (const int member : members_) {
    if (member == 0) continue;
    const auto here = key_of(launch_.attempt, next, concat("here/", member));
    while (!board_->find(here) && pulse_->silence(member) < options_.timeout) pause();
    if (board_->find(here)) present.push_back(member);
  }
  board_->set(key_of(launch_.attempt, next, "members"), join(present, " "));
  return present;
}

std::vector<int> Member::follow(int64_t next) {
  board_->set(key_of(launch_.attempt, next, concat("here/", rank())), "");
  const auto key = key_of(launch_.attempt, next, "members");
  while (!board_->find(key)) {
    EK_CHECK(pulse_->silence(0) < options_.timeout, kIo, "rank ", rank(), ": rank 0 is lost while a new group forms");
    pause();
  }
  std::istringstream text(*board_->find(key));
  std::vector<int> members;
  for (int member = 0; text >> member;) members.push_back(member);
  EK_CHECK(std::find(members.begin(), members.end(), rank()) != members.end(), kIo, "rank ", rank(),
           " came too late for the new group");
  return members;
}

void Member::regroup() {
  if (!leads())
    while (announced_epoch() <= epoch_) {
      EK_CHECK(pulse_->silence(0) < options_.timeout, kIo, "rank ", rank(), ": rank 0 is lost as well");
      if (pulse_->trouble().kind == Trouble::Kind::kLeft || pulse_->trouble().kind == Trouble::Kind::kStop) check();
      pause();
    }
  const int64_t next = leads() ? epoch_ + 1 : announced_epoch();
  members_ = leads() ? gather(next) : follow(next);
  epoch_ = next;
  broken_ = false;
  begin_watch();
  log::warning("[cluster] rank ", rank(), ": group ", epoch_, " of ranks ", join(members_));
  form_group();
}

void Member::retire() { pulse_->retire(); }

}  // namespace evenkeel::cluster
