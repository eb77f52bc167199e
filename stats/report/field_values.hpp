// Values that rows of fields.def take from a snapshot by more than a member or a member function.
#pragma once
#include <string_view>

#include "pool/size_class.hpp"
#include "stats/format.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

struct HostClass {
  std::string_view name;
  BlocksAndBytes some;
};

// Those that some block is of.
inline Vector<HostClass> host_classes(const Snapshot& snapshot) {
  Vector<HostClass> classes;
  for (std::size_t i = 0; i < kStandings; ++i)
    if (snapshot.host_standings[i].blocks)
      classes.push_back({name_of(class_of(static_cast<Standing>(i))), snapshot.host_standings[i]});
  return classes;
}

inline Vector<const LeakFigures*> all_leaks(const Snapshot& snapshot) {
  Vector<const LeakFigures*> leaks;
  for (const Vector<LeakFigures>* const some : {&snapshot.leaks, &snapshot.host_sites})
    for (const LeakFigures& leak : *some) leaks.push_back(&leak);
  return leaks;
}

inline Vector<std::string_view> names_of(const Vector<FrameworkFigures>& frameworks) {
  Vector<std::string_view> names;
  for (const FrameworkFigures& framework : frameworks) names.push_back(framework.name);
  return names;
}

inline String version_of(const PythonFigures& python) {
  return decimal(python.major, 0) + "." + decimal(python.minor, 0) + "." + decimal(python.micro, 0);
}

}  // namespace cistern
