#include "flower/server/allow_list_watch.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "flower/server/node_registry.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

/// A list in a file, and a watch that has taken it.
class WatchedList : public ::testing::Test {
 protected:
  WatchedList() {
    write(2);
    EXPECT_FALSE(watch_.look());
    EXPECT_EQ(watch_.look()->size(), 2u);
  }
  /// Writes the list of the first `count` keys.
  void write(size_t count, const std::string& more = "") {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += openssh_line(keys_.allowed[i].key, keys_.allowed[i].name) + "\n";
    write_file_atomic(file_, text + more);
  }

  testing::Keys keys_{3};
  fs::path file_ = keys_.folder.path() / "keys.txt";
  AllowListWatch watch_{file_};
};

TEST_F(WatchedList, IsReadAgainWhenItsContentHasChangedAndStaysSo) {
  EXPECT_FALSE(watch_.look());
  write(3);
  EXPECT_FALSE(watch_.look()) << "it may still be being written";
  EXPECT_EQ(watch_.look()->size(), 3u);
  EXPECT_FALSE(watch_.look()) << "nothing is new";
  write(1);
  EXPECT_FALSE(watch_.look());
  write(2);
  EXPECT_FALSE(watch_.look()) << "it has changed since the last look";
  EXPECT_EQ(watch_.look()->size(), 2u);
}

TEST_F(WatchedList, ThatIsDamagedOrGoneChangesNothing) {
  for (const std::string& damage : {std::string("ecdsa-sha2-nistp384 AAAA x\n"), std::string("\xff\n"),
                                    openssh_line(keys_.allowed[0].key, "twice") + "\n"}) {
    write(2, damage);
    for (int look = 0; look < 3; ++look) EXPECT_FALSE(watch_.look()) << damage;
  }
  write_file_atomic(file_, "");
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(watch_.look());
  fs::remove(file_);
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(watch_.look());
  write(3);
  watch_.look();
  EXPECT_EQ(watch_.look()->size(), 3u);
}

TEST(Registry, ANewListAdmitsAndRemovesKeysAtOnce) {
  const testing::Keys keys(3);
  auto options = testing::options_for(keys);
  options.allowed.pop_back();
  Registry registry(options);
  const auto first = *registry.id_of(keys.allowed[0].key);
  registry.activate(first, 30, "");
  auto list = keys.allowed;
  list.erase(list.begin());
  list[0].name = "another";
  EXPECT_EQ(registry.allow(list), std::vector{first});
  EXPECT_FALSE(registry.accepts(keys.allowed[0].key));
  EXPECT_FALSE(registry.accepts_fingerprint(keys.allowed[0].key.fingerprint()));
  EXPECT_FALSE(registry.online(first));
  EXPECT_TRUE(registry.accepts(keys.allowed[2].key) && registry.id_of(keys.allowed[2].key));
  EXPECT_EQ(registry.name(*registry.id_of(keys.allowed[1].key)), "another");
  EXPECT_EQ(registry.nodes().size(), 2u);
  EXPECT_TRUE(registry.allow(list).empty()) << "its key was removed before";
  registry.allow(keys.allowed);
  EXPECT_EQ(registry.id_of(keys.allowed[0].key), first) << "a key that comes back keeps its id";
  EXPECT_EQ(Registry(options).id_of(keys.allowed[2].key), registry.id_of(keys.allowed[2].key))
      << "also after a restart";
}

TEST(Coordinator, AKeyThatIsRemovedFromTheListLosesItsOpenMessagesAndItsNodeIsRefused) {
  const testing::Keys keys(2);
  auto options = testing::options_for(keys);
  options.allow_file = keys.folder.path() / "keys.txt";
  const auto line = [&](size_t i) { return openssh_line(keys.allowed[i].key, keys.allowed[i].name) + "\n"; };
  write_file_atomic(options.allow_file, line(0) + line(1));
  Coordinator coordinator(options);
  NodeLink link(testing::node_options(coordinator, keys, 0));
  link.join();
  const auto id = coordinator.send(link.id(), Content(), {});
  const auto instruction = testing::next_instruction(link);
  write_file_atomic(options.allow_file, line(1));
  const auto arrival = coordinator.wait(testing::patience());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->kind, Arrival::Kind::kLost);
  EXPECT_EQ(arrival->message_id, id);
  EXPECT_NE(arrival->reason.find("removed from the list"), std::string::npos);
  EXPECT_FALSE(coordinator.admits(keys.allowed[0].key.fingerprint()));
  EXPECT_THROW(link.reply(instruction, Content()), RunOver);
  EXPECT_NE(testing::refusal([&] { link.poll(); }).find("is not known"), std::string::npos);
}

TEST(Coordinator, AKeyThatIsAddedToTheListMayJoin) {
  const testing::Keys keys(2);
  auto options = testing::options_for(keys);
  options.allowed.pop_back();
  options.allow_file = keys.folder.path() / "keys.txt";
  Coordinator coordinator(options);
  EXPECT_FALSE(coordinator.admits(keys.allowed[1].key.fingerprint()));
  std::string text;
  for (const auto& allowed : keys.allowed) text += openssh_line(allowed.key, allowed.name) + "\n";
  write_file_atomic(options.allow_file, text);
  for (const auto end = testing::patience();
       !coordinator.admits(keys.allowed[1].key.fingerprint()) && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  NodeLink link(testing::node_options(coordinator, keys, 1));
  link.join();
  EXPECT_TRUE(testing::is_online(coordinator, testing::id_of(coordinator, "node-1")));
}

}  // namespace
}  // namespace evenkeel::flower
