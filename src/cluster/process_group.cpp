#include "cluster/process_group.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "cluster/heartbeat.h"
#include "cluster/rank_ends.h"

namespace evenkeel::cluster {
namespace {

constexpr const char* kNewestGroup = "newest-group";
constexpr const char* kFailure = "failure";

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::string key_of(const std::string& attempt, int64_t group, const std::string& key) {
  return group < 0 ? concat("evenkeel/", attempt, "/", key) : concat("evenkeel/", attempt, "/", group, "/", key);
}

ProcessGroup::ProcessGroup(const Launch& launch, const ClusterOptions& options)
    : launch_(launch), options_(options), group_(nullptr), members_(first_ranks(launch.size)) {
  set_leaving_because_of_another(!leads());  // rank 0 has the store
  store_ = make_store(launch_.store, options_.start_timeout);
  auto own = launch_.store;
  own.here = false;
  own.listening = -1;
  heartbeat_ = new Heartbeat(make_store(own, options_.start_timeout), {.rank = rank(),
                                                                       .heartbeat_prefix = root_key("heartbeat/"),
                                                                       .newest_group_key = root_key(kNewestGroup),
                                                                       .timeout_s = options_.timeout,
                                                                       .start_timeout_s = options_.start_timeout});
  set_leaving_because_of_another(false);
  begin_watch();
  heartbeat_->start();
}

void ProcessGroup::begin_watch() {
  heartbeat_->watch(
      {.ranks = leads() ? members_ : std::vector<int>{0}, .group = group_number_, .failure_key = own_key(kFailure)});
}

int ProcessGroup::group_rank() const {
  return static_cast<int>(std::find(members_.begin(), members_.end(), rank()) - members_.begin());
}

template <typename Work>
auto ProcessGroup::call_store(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    set_leaving_because_of_another(true);  // the store is gone with rank 0
    throw error.with_context(concat("rank ", rank()));
  }
}

void ProcessGroup::post(const std::string& key, const std::string& value) {
  call_store([&] { store_->set(own_key(key), value); });
}

std::optional<std::string> ProcessGroup::read(const std::string& key) {
  return call_store([&] { return store_->find(own_key(key)); });
}

std::string ProcessGroup::wait_for(const std::string& key) {
  for (;; pause()) {
    if (auto value = read(key)) return *value;
    check();
  }
}

void ProcessGroup::check() {
  const auto failure = heartbeat_->failure();
  if (failure.kind != PeerFailure::Kind::kNone) set_leaving_because_of_another(true);
  switch (failure.kind) {
    case PeerFailure::Kind::kNone:
      return;
    case PeerFailure::Kind::kStop:
      throw Interrupted(failure.text);
    case PeerFailure::Kind::kLost:
      broken_ = true;
      fail(kIo, "rank ", rank(), ": ", failure.text);
    case PeerFailure::Kind::kLeft:
      fail(kIo, "rank ", rank(), " leaves because of another: ", failure.text);
  }
}

void ProcessGroup::pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

void ProcessGroup::tell(const std::string& failure) noexcept {
  try {
    if (read(kFailure)) return;
    post(kFailure, failure);
    if (leads()) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  } catch (const std::exception& error) {
    log::warning("[cluster] rank ", rank(), " cannot say why it leaves: ", error.what());
  }
}

void ProcessGroup::tell_stop(const std::string& why) noexcept { tell(concat("stop ", why)); }

void ProcessGroup::form_group() {
  group_ = nullptr;
  if (members_.size() < 2) return;
  set_leaving_because_of_another(true);  // it waits for the others
  group_ = make_group(*store_, launch_.store,
                      {.name = own_key("gloo/"),
                       .rank = group_rank(),
                       .size = static_cast<int>(members_.size()),
                       .device = options_.device,
                       .timeout_s = options_.timeout})
               .release();
  set_leaving_because_of_another(false);
}

void ProcessGroup::together(const std::string& what, const std::function<void(Collective& group)>& work) {
  check();
  EK_CHECK(group_ != nullptr, kInternal, "rank ", rank(), ", ", what, ": the group has no second member");
  try {
    work(*group_);
  } catch (const Error& error) {
    broken_ = true;
    if (error.kind() == kIo) set_leaving_because_of_another(true);
    throw error.with_context(concat("rank ", rank(), ", ", what));
  }
}

int64_t ProcessGroup::announced_group() { return store_->add(root_key(kNewestGroup), 0); }

/// Returns the ranks of the next group: all that announce themselves. Ranks without a heartbeat are not waited for.
std::vector<int> ProcessGroup::gather_members(int64_t next) {
  store_->add(root_key(kNewestGroup), next - announced_group());
  std::vector<int> present{0};
  for (const int member : members_) {
    if (member == 0) continue;
    const auto key = key_of(launch_.attempt, next, concat("here/", member));
    while (!store_->find(key) && heartbeat_->silence(member) < options_.timeout) pause();
    if (store_->find(key)) present.push_back(member);
  }
  store_->set(key_of(launch_.attempt, next, "members"), join(present, " "));
  return present;
}

std::vector<int> ProcessGroup::await_members(int64_t next) {
  store_->set(key_of(launch_.attempt, next, concat("here/", rank())), "");
  const auto key = key_of(launch_.attempt, next, "members");
  while (!store_->find(key)) {
    EK_CHECK(heartbeat_->silence(0) < options_.timeout, kIo, "rank ", rank(),
             ": rank 0 is lost while a new group forms");
    pause();
  }
  std::istringstream text(*store_->find(key));
  std::vector<int> members;
  for (int member = 0; text >> member;) members.push_back(member);
  EK_CHECK(std::find(members.begin(), members.end(), rank()) != members.end(), kIo, "rank ", rank(),
           " came too late for the new group");
  return members;
}

void ProcessGroup::regroup() {
  set_leaving_because_of_another(true);
  if (!leads())
    while (announced_group() <= group_number_) {
      EK_CHECK(heartbeat_->silence(0) < options_.timeout, kIo, "rank ", rank(), ": rank 0 is lost as well");
      if (heartbeat_->failure().kind == PeerFailure::Kind::kLeft ||
          heartbeat_->failure().kind == PeerFailure::Kind::kStop)
        check();
      pause();
    }
  const int64_t next = leads() ? group_number_ + 1 : announced_group();
  members_ = leads() ? gather_members(next) : await_members(next);
  group_number_ = next;
  broken_ = false;
  begin_watch();
  log::warning("[cluster] rank ", rank(), ": group ", group_number_, " of ranks ", join(members_));
  form_group();
  set_leaving_because_of_another(false);
}

void ProcessGroup::disable_guard() { heartbeat_->disable_guard(); }

}  // namespace evenkeel::cluster
