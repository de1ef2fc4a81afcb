/// \file  Stores which node acts as which client, and the terms that the node accepted. The file is in the run folder,
/// so a restarted server continues with the same clients.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "flower/federation/content_digests.h"
#include "flower/server/coordinator.h"

namespace evenkeel::flower {

/// A change of a client's node after it had joined.
struct MemberChange {
  int64_t after_round = 0;  ///< rounds that were committed
  std::string what;         ///< "key", "rows", "test rows", "base", "tokenizer" or "program"
  std::string was;          ///< the earlier value: a fingerprint, a salted digest or a version

  void visit(auto& field) {
    field("after_round", after_round);
    field("what", what);
    field("was", was);
  }
};

/// One client of a run and its node.
struct Member {
  int64_t client = 0;
  std::string key;   ///< roster_key() of the node
  std::string name;  ///< the node's name in the grid
  /// The budget beta_c, above 0, at most 1.
  double budget = 1;
  /// The number of training rows |D_c|.
  int64_t examples = 0;
  /// The number of the client's own test rows; 0 if its node gives no scores of them.
  int64_t test_rows = 0;
  std::string program;  ///< version of the node's program, as the node reports it
  /// How the node became this client: by its "key", by its "name", or by "arrival" as the next node that came.
  std::string assigned{};
  int64_t first_round = 0;  ///< the first round in which the client may be drawn, 0 = the first
  ContentDigests content{};
  std::vector<MemberChange> changes{};  ///< in the order in which they happened
  /// Why the node gives no scores of test rows that it has; empty if it gives them or has none.
  std::string no_scores{};

  void visit(auto& field) {  // base/format/record.h
    field("client", client, 0);
    field("key", key);
    field("name", name);
    field("budget", budget);
    field("examples", examples, 0);
    field.optional("test_rows", test_rows);
    field("program", program);
    field("assigned", assigned);
    field("first_round", first_round);
    field("content", content);
    field("changes", changes);
    field.optional("no_scores", no_scores);
  }
};

/// Returns the name under which a node is recognised after a restart: the fingerprint of its key, or "node ID" if the
/// grid knows no key.
std::string roster_key(const NodeInfo& node);

/// Maps clients to nodes and stores the mapping in a file. Threads: one.
class Roster {
 public:
  /// Reads `file`. If there is none, makes one with a new random run name. The file is sealed (base/plain/sealed.h).
  /// \throws kCheckpoint when it is damaged
  explicit Roster(std::filesystem::path file);

  const std::string& run() const { return run_; }  ///< random name of the run: 16 hexadecimal digits
  /// Returns all members, by client.
  const std::map<int64_t, Member>& members() const { return members_; }
  /// Returns the member that `node` acts as; null if there is none.
  const Member* member(const NodeInfo& node) const;
  /// Adds or replaces a member and saves the file before it returns. \throws kInternal when the client has another
  /// node.
  void add(Member member);
  /// Removes a member whose key may not join any more, before the first round.
  void drop(int64_t client);
  /// Gives each client whose key was replaced to the node with the new key (NodeInfo::replaces), and records this.
  /// \param rounds  rounds that are committed
  /// \return the clients that have another node now
  std::vector<int64_t> hand_over(std::span<const NodeInfo> nodes, int64_t rounds);
  /// Records content and program of a returning node, and what of them has changed. The digest of test rows is kept if
  /// their number differs from the number at joining.
  /// \param parts  names of the changed parts of its content (changed_parts())
  void note_return(int64_t client, const ContentDigests& content, const std::string& program,
                   std::span<const std::string> parts, int64_t rounds);
  /// States what the members accept, and saves the file. If members have accepted something else, they are removed and
  /// the run gets a new name, so that their nodes are asked again. Call it before the first round only.
  /// \param offer  text of the offer (flower/federation/agreement.h) without the name of the run
  /// \return the number of removed members
  size_t offer(const std::string& offer);

 private:
  void load();
  void index();
  /// Finds members again by their keys, and writes the file.
  void save();

  std::filesystem::path file_;
  std::string run_, offer_;                // name of the run; SHA-256 of its offer, empty before offer()
  std::map<int64_t, Member> members_;      // by client
  std::map<std::string, int64_t> by_key_;  // clients of the members
};

}  // namespace evenkeel::flower
