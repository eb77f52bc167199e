"""What scripts/report-fields makes of a table of fields, and what it refuses."""
import importlib.machinery
import importlib.util
import json
import pathlib
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "report-fields"
loader = importlib.machinery.SourceFileLoader("report_fields", str(SCRIPT))
report_fields = importlib.util.module_from_spec(importlib.util.spec_from_loader("report_fields", loader))
loader.exec_module(report_fields)

ROWS = r'''// A comment.
SCHEMA(7)
ENUM(colour)
VALUE("red", "hot")
VALUE("blue", "cold")
END_ENUM
OBJECT(process, Snapshot, "The process.")
FIELD(schema, version, kSchema, "The version.")
END
OBJECT(part, Part, "A part.")
RULE("dependentRequired": {"b": ["a"]})
FIELD(a, bytes, of.a, "Two literals, (with) a comma "
                      "and a \"quote\".")
FIELD_IF(b, count, of.any(1, 2), of.b(1, 2), "Sometimes.", "0.2")
FIELD_IF_ANY(c, list(like("^[(]", text)), of.c, "Not empty.")
FIELD_IF_KNOWN(d, one_of(colour), of.d, "Its colour.")
END
OBJECT(report, Snapshot, "All.")
FIELD(cistern, object(process), of, "The process.")
FIELD(parts, map(part, &Part::name, colour), of.parts, "By colour.")
END
'''


def made(rows=ROWS):
    return report_fields.schema(report_fields.Table(rows))


class Fields(unittest.TestCase):
    def test_a_row_is_a_property(self):
        part = made()["$defs"]["part"]
        self.assertEqual(part["required"], ["a"])
        self.assertEqual(part["dependentRequired"], {"b": ["a"]})
        self.assertEqual(part["properties"]["a"], {
            "type": "integer", "minimum": 0, "description": 'Two literals, (with) a comma and a "quote".'})
        self.assertEqual(part["properties"]["b"]["description"], "Sometimes. Since 0.2.")
        self.assertEqual(part["properties"]["c"], {
            "type": "array", "items": {"type": "string", "pattern": "^[(]"}, "minItems": 1,
            "description": "Not empty."})
        self.assertEqual(part["properties"]["d"]["enum"], ["red", "blue"])

    def test_the_version_is_that_of_the_table(self):
        self.assertEqual(made()["title"], "Cistern report, version 7")
        self.assertEqual(made()["$defs"]["process"]["properties"]["schema"]["const"], 7)

    def test_a_map_has_a_value_by_key(self):
        self.assertEqual(made()["properties"]["parts"]["additionalProperties"], {"$ref": "#/$defs/part"})
        self.assertEqual(made()["properties"]["parts"]["propertyNames"], {"enum": ["red", "blue"]})

    def test_the_page_has_each_field_and_says_where_objects_are(self):
        page = report_fields.page(report_fields.Table(ROWS))
        self.assertIn("| `b` | at times | integer |  | Sometimes. Since 0.2. |", page)
        self.assertIn("| `d` | if known | one of [colour](#colour) |  | Its colour. |", page)
        self.assertIn("A part. In `parts.KEY`.", page)
        self.assertIn("| `blue` | cold |", page)

    def test_json_is_the_same_however_it_is_set(self):
        self.assertEqual(json.loads(report_fields.json_text(made())), made())

    def test_what_is_no_row_is_refused(self):
        for wrong in ('FEILD(e, count, of.e, "It.")', 'FIELD(e, cuont, of.e, "It.")', 'FIELD(a, count, of.a, "It.")',
                      'FIELD(e, count, of.e, It.)', 'FIELD(e, count, of.e, "it")', 'FIELD(e, count, of.e, "It."'):
            with self.subTest(wrong), self.assertRaises(report_fields.Wrong):
                made(ROWS.replace("RULE(", wrong + "\nRULE("))

    def test_a_row_with_too_few_or_too_many_parts_is_named(self):
        for wrong in ('FIELD(e, count, "It.")', 'FIELD_IF(e, count, of.e, "It.")',
                      'FIELD(e, count, of.e, "It.", "0.2", 1)', 'VALUE("green")'):
            row = wrong.partition("(")[0]
            with self.subTest(wrong), self.assertRaisesRegex(report_fields.Wrong, rf"its form is {row}\("):
                made(ROWS.replace("RULE(", wrong + "\nRULE("))

    def test_an_object_that_nothing_has_is_refused(self):
        with self.assertRaisesRegex(report_fields.Wrong, "orphan"):
            report_fields.page(report_fields.Table(ROWS + 'OBJECT(orphan, Part, "A part.")\nEND\n'))


class Contract(unittest.TestCase):
    def breaches(self, old, new, version=7):
        self.assertIn(old, ROWS)
        rows = ROWS.replace(old, new).replace("SCHEMA(7)", f"SCHEMA({version})")
        return list(report_fields.breaches(made(), made(rows)))

    def test_fields_and_values_may_be_added(self):
        self.assertEqual(self.breaches("RULE(", 'FIELD(e, count, of.e, "New.", "0.2")\nRULE('), [])
        self.assertEqual(self.breaches("END_ENUM", 'VALUE("green", "new")\nEND_ENUM'), [])
        self.assertEqual(self.breaches("one_of(colour), of.d", "text, of.d"), [])

    def test_meanings_may_be_said_better(self):
        self.assertEqual(self.breaches("Its colour.", "The colour."), [])

    def test_nothing_goes_or_changes_within_a_version(self):
        for old, new, wanted in (
                ('FIELD_IF_KNOWN(d, one_of(colour), of.d, "Its colour.")\n', "", "part.d is gone"),
                ("FIELD(a, ", "FIELD(e, ", "part.a is gone"),
                ("FIELD(a, bytes", "FIELD(a, seconds(3)", "part.a is something else"),
                ('VALUE("blue", "cold")\n', "", "part.d is something else"),
                ("FIELD(a, bytes", "FIELD_IF_KNOWN(a, bytes", "part.a is not always there any more")):
            with self.subTest(new):
                self.assertIn(wanted, self.breaches(old, new))

    def test_a_new_version_may_be_anything(self):
        self.assertEqual(self.breaches("FIELD(a, ", "FIELD(e, ", 8), [])


if __name__ == "__main__":
    unittest.main()
