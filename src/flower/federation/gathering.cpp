#include "flower/federation/gathering.h"

#include <algorithm>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "flower/federation/sessions.h"

namespace evenkeel::flower {
namespace {

constexpr auto kAskAgain = std::chrono::seconds(30);  // a node that declined may have been mended since

void check(const Acceptance& acceptance, int64_t client, const FleetTerms& terms) {
  EK_CHECK(acceptance.client == client, kData, "it accepts to be client ", acceptance.client, ", offered: ", client);
  EK_CHECK(acceptance.budget > 0 && acceptance.budget <= 1, kData, "its budget is ", acceptance.budget,
           ", allowed: above 0, up to 1");
  EK_CHECK(acceptance.examples >= 1 && acceptance.examples <= terms.most_examples, kData, "it says to have ",
           acceptance.examples, " examples, allowed: 1 to ", terms.most_examples);
  check_statements(acceptance);
}

std::string asked_as(const NodeInfo& node) { return concat(node.id, ' ', node.replaces, ' ', node.name); }

}  // namespace

Gathering::~Gathering() {
  for (const auto& [message, asked] : asked_) fleet_.grid.forget(message);
  for (const auto& [message, node] : refused_) fleet_.grid.forget(message);
}

std::set<int64_t> Gathering::taken() const {
  std::set<int64_t> clients;
  for (const auto& [client, member] : fleet_.roster.members()) clients.insert(client);
  for (const auto& [message, asked] : asked_) clients.insert(asked.client);
  return clients;
}

bool Gathering::is_asked(uint64_t node) const {
  return std::any_of(asked_.begin(), asked_.end(), [&](const auto& one) { return one.second.node.id == node; }) ||
         std::any_of(refused_.begin(), refused_.end(), [&](const auto& one) { return one.second == node; });
}

void Gathering::attend() {
  const auto nodes = fleet_.grid.nodes();
  record_list(nodes);
  hand_over(nodes);
  auto clients = taken();
  for (const auto& node : nodes) {
    const auto again = ask_again_.find(asked_as(node));
    const bool waits = again != ask_again_.end() && Clock::now() < again->second;
    if (!node.online || waits || fleet_.roster.member(node) || is_asked(node.id)) continue;
    const auto place = fleet_.joining.place_of(node, nodes, clients);
    if (place.client)
      ask(node, place), clients.insert(*place.client);
    else if (!place.refusal.empty())
      refuse(node, place.refusal);
  }
}

/// What changed before this process began is recorded by serve(), which knows the list of the run before.
void Gathering::record_list(std::span<const NodeInfo> nodes) {
  if (!fleet_.grid.lists_all()) return;
  std::map<std::string, std::string> now;
  for (const auto& node : nodes)
    if (fleet_.grid.admits(node.fingerprint)) now.emplace(node.fingerprint, node.name);
  const auto before = std::exchange(listed_, now).value_or(now);
  for (const auto& [key, name] : now)
    if (!before.contains(key)) fleet_.record({.kind = fed::AuditKind::kAdmitted, .key = key, .name = name});
  for (const auto& [key, name] : before)
    if (!now.contains(key)) fleet_.record({.kind = fed::AuditKind::kRevoked, .key = key, .name = name});
}

void Gathering::hand_over(std::span<const NodeInfo> nodes) {
  for (const int64_t client : fleet_.roster.hand_over(nodes, fleet_.rounds.value_or(0))) {
    const auto& member = fleet_.roster.members().at(client);
    fleet_.agreed.erase(client);
    fleet_.informed.erase(client);
    log::info("[serve] client ", client, " has another key: ", shown(member.name), ", ", member.key,
              " in the place of ", member.changes.back().was);
    fleet_.record({.kind = fed::AuditKind::kAdmitted,
                   .key = member.key,
                   .name = member.name,
                   .client = client,
                   .outcome = concat("in the place of ", member.changes.back().was)});
  }
}

void Gathering::drop_barred() {
  std::vector<int64_t> barred;
  for (const auto& [client, member] : fleet_.roster.members())
    if (!fleet_.grid.admits(member.key)) barred.push_back(client);
  for (const int64_t client : barred) {
    const auto& member = fleet_.roster.members().at(client);
    log::warning("[serve] ", shown(member.name), " is client ", client,
                 " no more: its key was removed from the list of keys");
    fleet_.record({.kind = fed::AuditKind::kRevoked,
                   .key = member.key,
                   .name = member.name,
                   .client = client,
                   .outcome = "is no client any more"});
    fleet_.roster.drop(client);
  }
}

void Gathering::ask(const NodeInfo& node, const Place& place) {
  IncomingEnvelope incoming(node.name, check_no_payload);
  auto offer = offer_envelope(fleet_.offer(*place.client));
  offer.audit = fleet_.audit_head();
  auto message = fleet_.grid.send(node.id, EnvelopePacker().content(offer),
                                  {.type = "query", .group = "0", .place = incoming.allocator()});
  asked_.emplace(std::move(message), Asked{node, *place.client, place, std::move(incoming), fleet_.rounds.has_value()});
  fleet_.record({.kind = fed::AuditKind::kOffer,
                 .key = roster_key(node),
                 .name = node.name,
                 .client = *place.client,
                 .bytes_down = offer.bytes(),
                 .digest = sha256(offer.header)});
}

void Gathering::refuse(const NodeInfo& node, const std::string& why) {
  pass_over(node, why);
  const Envelope envelope{
      .run = fleet_.roster.run(), .kind = kRefusalEnvelope, .header = record::write(JoinRefusal{why}).dump()};
  refused_.emplace(fleet_.grid.send(node.id, EnvelopePacker().content(envelope), {.type = "query", .group = "0"}),
                   node.id);
}

void Gathering::on_reply(const Arrival& arrival) {
  refused_.erase(arrival.message_id);
  auto found = asked_.extract(arrival.message_id);
  if (found.empty()) return;
  const auto& asked = found.mapped();
  if (arrival.failure) throw *arrival.failure;
  if (arrival.left) return log::info("[serve] ", shown(asked.node.name), " has not answered: ", arrival.reason);
  if (arrival.kind != Arrival::Kind::kReply) return pass_over(asked.node, arrival.reason);
  try {
    add(asked);
  } catch (const Error& error) {
    pass_over(asked.node, error.what());
  }
}

void Gathering::pass_over(const NodeInfo& node, std::string_view why) {
  fleet_.record(
      {.kind = fed::AuditKind::kRefused, .key = roster_key(node), .name = node.name, .outcome = std::string(why)});
  log::warning("[serve] ", shown(node.name), " does not join: ", shown(why, kMostReason));
  ask_again_[asked_as(node)] = Clock::now() + kAskAgain;
}

void Gathering::add(const Asked& asked) {
  const auto acceptance = acceptance_in(asked.incoming.envelope());
  check(acceptance, asked.client, fleet_.terms);
  if (fleet_.joining.check_budget) fleet_.joining.check_budget(asked.client, acceptance.budget);
  const Member member{.client = asked.client,
                      .key = roster_key(asked.node),
                      .name = asked.node.name,
                      .budget = acceptance.budget,
                      .examples = acceptance.examples,
                      .test_rows = acceptance.test_rows,
                      .program = acceptance.program,
                      .assigned = asked.place.how,
                      .first_round = fleet_.rounds ? *fleet_.rounds + 1 : 0,
                      .content = acceptance.content,
                      .no_scores = shown(acceptance.no_scores, kMostReason)};
  fleet_.roster.add(member);
  if (asked.under_way) fleet_.agreed.insert(member.client);
  if (!asked.place.warning.empty()) log::warning("[serve] ", asked.place.warning);
  log::info("[serve] ", shown(member.name), " is client ", member.client, ": budget ", member.budget, ", ",
            member.examples, " examples", member.first_round > 0 ? ", from round " : "",
            member.first_round > 0 ? std::to_string(member.first_round + 1) : "");
  if (member.program != version())
    log::warning("[serve] ", shown(member.name), " runs evenkeel ", shown(member.program), ", this server ", version(),
                 ": equal bits need equal programs");
  tell_what_is_not_given(member.name, acceptance);
  record_join(member, asked.incoming.envelope());
  if (fleet_.joining.on_join) fleet_.joining.on_join(member);
}

void Gathering::tell_what_is_not_given(const std::string& name, const Acceptance& acceptance) const {
  if (!acceptance.no_scores.empty())
    log::warning("[serve] ", shown(name), " gives no scores of its rows: ", shown(acceptance.no_scores, kMostReason));
  else if (fleet_.joining.wants_items && acceptance.test_rows > 0 && !acceptance.items)
    log::warning("[serve] ", shown(name),
                 " gives no scores of single rows, which evaluate.items asks for (node --items)");
}

void Gathering::record_join(const Member& member, const Envelope& envelope) const {
  fleet_.record({.kind = fed::AuditKind::kJoin,
                 .key = member.key,
                 .name = member.name,
                 .client = member.client,
                 .bytes_up = envelope.bytes(),
                 .outcome = concat("budget ", member.budget, ", ", member.examples, " examples, ", member.test_rows,
                                   " test rows, evenkeel ", member.program),
                 .peer = envelope.audit});
}

}  // namespace evenkeel::flower
