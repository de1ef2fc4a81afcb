#include "flower/federation/roster.h"

#include <utility>

#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "crypto/secret.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kNameBytes = 8;  // of the random name of a run

struct Page {
  std::string run, offer{};
  std::vector<Member> members;
  void visit(auto& field) {
    field("run", run);
    field("members", members);
    field.optional("offer", offer);
  }
};

const std::string& digest_of_part(const ContentDigests& content, std::string_view part) {
  if (part == "rows") return content.rows;
  if (part == "test rows") return content.tests;
  return part == "base" ? content.base : content.tokenizer;
}

}  // namespace

std::string roster_key(const NodeInfo& node) {
  return node.fingerprint.empty() ? concat("node ", node.id) : node.fingerprint;
}

Roster::Roster(fs::path file) : file_(std::move(file)) {
  make_folders(file_.parent_path());
  if (path_exists(file_)) {
    load();
  } else {
    run_ = crypto::random_hex(kNameBytes);
    save();
  }
}

void Roster::load() {
  const Json json = read_sealed(file_);
  auto page = record::read<Page>({json, file_.string(), kCheckpoint});
  run_ = std::move(page.run);
  offer_ = std::move(page.offer);
  for (auto& member : page.members) members_[member.client] = std::move(member);
  index();
}

void Roster::index() {
  by_key_.clear();
  for (const auto& [client, member] : members_) by_key_.emplace(member.key, client);
}

const Member* Roster::member(const NodeInfo& node) const {
  const auto found = by_key_.find(roster_key(node));
  return found == by_key_.end() ? nullptr : &members_.at(found->second);
}

void Roster::add(Member member) {
  const auto known = members_.find(member.client);
  EK_CHECK(known == members_.end() || known->second.key == member.key, kInternal, "client ", member.client,
           " is played by ", known->second.key, " already");
  members_[member.client] = std::move(member);
  save();
}

void Roster::drop(int64_t client) {
  members_.erase(client);
  save();
}

std::vector<int64_t> Roster::hand_over(std::span<const NodeInfo> nodes, int64_t rounds) {
  std::vector<int64_t> changed;
  for (const auto& node : nodes) {
    if (node.replaces.empty() || member(node)) continue;
    for (auto& [client, member] : members_) {
      if (member.key != node.replaces) continue;
      member.changes.push_back({.after_round = rounds, .what = "key", .was = member.key});
      member.key = roster_key(node);
      member.name = node.name;
      member.content = {};  // another node has another salt
      changed.push_back(client);
    }
  }
  if (!changed.empty()) save();
  return changed;
}

void Roster::note_return(int64_t client, const ContentDigests& content, const std::string& program,
                         std::span<const std::string> parts, int64_t rounds) {
  auto& member = members_.at(client);
  const auto note = [&](const std::string& what, const std::string& was) {
    member.changes.push_back({.after_round = rounds, .what = what, .was = was});
  };
  for (const auto& part : parts) note(part, digest_of_part(member.content, part));
  if (program != member.program) note("program", member.program);
  const bool as_many_tests = content.tested == member.content.tested || !member.content.given();
  const auto before = std::exchange(member.content, content);
  if (!as_many_tests) member.content.tests = before.tests, member.content.tested = before.tested;
  member.program = program;
  save();
}

size_t Roster::offer(const std::string& offer) {
  const auto digest = sha256(offer);
  if (digest == offer_) return 0;
  const size_t removed = members_.size();
  if (removed > 0) run_ = crypto::random_hex(kNameBytes);
  members_.clear();
  offer_ = digest;
  save();
  return removed;
}

void Roster::save() {
  index();
  Page page{.run = run_, .offer = offer_, .members = {}};
  for (const auto& [client, member] : members_) page.members.push_back(member);
  write_sealed(file_, record::write(page), 2);
}

}  // namespace evenkeel::flower
