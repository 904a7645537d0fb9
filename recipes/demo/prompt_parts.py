"""Sentence frames and slot fillers for make_prompts.py; every text here is our own.

A frame's "~" marks where an optional tail goes; a frame without one takes no tail.
"""

from __future__ import annotations

from typing import NamedTuple


class Domain(NamedTuple):
    """What a domain's prompts are made of."""

    name: str
    frames: list[str]
    tails: list[str]
    chats: list[tuple[str, str, str]]


def _items(block: str) -> list[str]:
    """Split a block at its bars."""
    return [" ".join(item.split()) for item in block.split("|")]


def _lines(block: str) -> list[str]:
    r"""Split a block at its line ends; "\n" inside a line is a line break of the text."""
    return [line.strip().replace(r"\n", "\n") for line in block.strip().splitlines()]


def _chats(block: str) -> list[tuple[str, str, str]]:
    """Read blank-line separated dialogues: question, answer, then one follow-up a line."""
    dialogues = [_lines(part) for part in block.strip().split("\n\n")]
    return [(ask, reply, more) for ask, reply, *rest in dialogues for more in rest]


OPENERS = _items("""
Hi! | Hello! | Hi there. | Hey, I need some help. | Good morning! | Hi again. |
I could use a hand with something. | Hello, hope you can help. | Good evening! | Me again.
""")

SLOTS: dict[str, list[str]] = {}

# Shared by several domains

SLOTS["name"] = _items("""
Mia | Omar | Priya | Tom | Elena | Kofi | Hannah | Luis | Aisha | Ben | Yuki | Clara | Daniel |
Fatima | George | Ines | Jonas | Kemi | Leo | Marta | Nadia | Oscar | Paula | Quentin | Rosa |
Samir | Tessa | Umar | Vera | Will | Zoe | Ana | Felix | Greta | Hugo | Irene | Jamal | Lena |
Mateo | Nora | Pavel | Ruth | Stefan | Tara | Viktor | Wanda
""")

SLOTS["relative"] = _items("""
daughter | son | nephew | niece | neighbour | father | mother | sister | brother | flatmate |
grandson | granddaughter | best friend | cousin | uncle | aunt | colleague
""")

SLOTS["child"] = _items("""
daughter | son | nephew | niece | grandson | granddaughter | little cousin | little brother
""")

SLOTS["reader"] = _items("""
a ten-year-old | my grandmother | a new colleague | someone who never liked science | a teenager |
a curious six-year-old | a first-year student | a busy manager | a farmer |
a classroom of beginners | a person who learns best from examples | a taxi driver |
a visitor from the Middle Ages | a lawyer | a nurse | a shop owner | a football fan |
someone with five minutes to spare | an artist | a retired teacher | a carpenter | a musician |
a group of scouts | a journalist | a cook | a complete beginner | my little brother |
a sceptical friend | a parent helping with homework | someone learning English | a gardener |
a bus full of tourists | a town council | a nervous student before a test | a truck driver |
an audience at a public library | a young athlete | a bank clerk | a new parent | a sailor
""")

SLOTS["weekday"] = _items("Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday")

SLOTS["date"] = _items("""
3 March | 14 April | 21 May | 2 June | 18 July | 9 August | 27 September | 5 October |
11 November | 6 December | 30 January | 12 February | 8 May | 23 June | 16 October | 25 March
""")

SLOTS["time"] = _items("""
8:30 | 9:00 | 9:45 | 10:15 | 11:00 | noon | 1:30 pm | 2:15 pm | 3:00 pm | 4:30 pm | 5:45 pm |
6:20 pm | 7:00 pm | 8:10 pm
""")

SLOTS["month"] = _items("""
January | February | March | April | May | June | July | August | September | October | November |
December
""")

SLOTS["city"] = _items("""
Lisbon | Rome | Kyoto | Istanbul | Edinburgh | Buenos Aires | Vienna | Marrakesh | Prague |
Mexico City | Copenhagen | Hanoi | Cape Town | Barcelona | Montreal | Athens | Singapore | Dublin |
Budapest | Seoul | Florence | Amsterdam | Chicago | Bangkok | Krakow | Lima | Berlin | Reykjavik |
New Orleans | Melbourne | Porto | Cairo | Stockholm | Naples | Seville | Taipei | San Francisco |
Tallinn | Nairobi | Venice | Boston | Ljubljana | Bruges | Valencia | Osaka | Hamburg |
Quebec City | Granada | Zagreb | Wellington
""")

SLOTS["country"] = _items("""
Portugal | Japan | Kenya | Brazil | Norway | Canada | Peru | Egypt | Vietnam | Turkey | Poland |
Morocco | Iceland | Chile | Thailand | Ireland | Greece | Australia | Mexico | Finland | India |
Switzerland | Nigeria | Indonesia | Spain | New Zealand | Hungary | Jordan | Ethiopia | Cuba |
Denmark | Colombia | South Korea | Austria | Ghana | Malaysia | Argentina | Sweden | Nepal |
Tanzania | Croatia | Bolivia | Mongolia | Belgium | Madagascar | Estonia | Uruguay | Sri Lanka
""")

# Explain a concept

SLOTS["concept"] = _items("""
photosynthesis | gravity | inflation | compound interest | the water cycle | a black hole |
plate tectonics | natural selection | supply and demand | machine learning | encryption |
the greenhouse effect | electricity | magnetism | the placebo effect | opportunity cost | DNA |
the immune system | radio | the tide | recursion | probability | sampling bias | nuclear fusion |
friction | evaporation | cloud computing | game theory | the stock market | a mortgage |
carbon dating | sound | entropy | fermentation | erosion | osmosis | a rainbow | democracy |
the scientific method | an algorithm | a vaccine | insurance | a neural network |
the theory of relativity | the exchange rate | the carbon cycle | a database index |
a search engine | the Doppler effect | peer pressure | confirmation bias | the food chain |
a solar panel | a pension | the ozone layer | short-term memory | jet lag | a leap year |
continental drift | the law of averages | irony | a credit score | the speed of light |
a heat pump | cognitive dissonance
""")

SLOTS["analogy"] = _items("""
cooking | a busy kitchen | a football match | a city full of roads | a library | a post office |
a train station | gardening | a choir | a bathtub filling with water | a card game |
a marketplace | a school playground | a beehive | a factory | driving a car | a board game |
an orchestra | a river | a bank account | building a house | a relay race | a supermarket queue |
a puzzle | a theatre play | a bicycle | a family dinner | a camping trip |
a snowball rolling downhill | a game of catch | a box of toys | packing a suitcase |
a spider's web | a restaurant | a lighthouse | a swimming pool | baking bread | a crowded bus |
knitting a scarf | a treasure hunt
""")

SLOTS["group"] = _items("""
my class | a science club | a room of engineers | my team at work | a group of pensioners |
some visiting students | a school assembly | a local history society | new volunteers |
a parents' evening | my book club | a youth group | an evening course | a lunch-time meeting
""")

EXPLAIN = Domain(
    "explain",
    _lines("""
    What is {concept}, in plain words?~
    How does {concept} work?~
    Explain {concept} to {reader}.~
    Can you explain {concept} using {analogy} as an analogy?
    I keep hearing about {concept} and I still don't get it. Could you walk me through it?~
    Why is {concept} important in everyday life?~
    What do most people get wrong about {concept}?~
    Teach me the basics of {concept} step by step.~
    I have a test tomorrow and need to understand {concept} quickly. What are the main points?~
    Give me a simple example of {concept} and say what it shows.
    My {relative} asked me about {concept} and I had no good answer. What should I say?~
    Explain {concept} in exactly [2-6] sentences.
    Explain {concept} first in one sentence, then in one paragraph.
    Describe {concept} as if you were talking to {reader}.~
    What should I already know before I try to understand {concept}?~
    What is the most surprising thing about {concept}?~
    Write a short dialogue between a teacher and a student about {concept}.~
    Which [3-5] facts about {concept} should everyone know?~
    I'm preparing a short talk on {concept} for {group}. How should I introduce it?~
    Break {concept} down into its main parts and explain each one.~
    Compare {concept} to {analogy} and say where the comparison breaks down.
    I read a long article about {concept} and got lost halfway. What is the core idea?~
    """),
    _lines("""
    Keep it under [80-200/20] words.
    Please avoid technical terms.
    Use one everyday example.
    A few bullet points would be fine.
    I'm not a native speaker, so keep the language simple.
    Finish with a one-line summary.
    Use a friendly tone.
    Be precise, I like details.
    Add a short list of key terms at the end.
    Please end with two questions I can use to test myself.
    Start with the big picture.
    Short sentences, please.
    """),
    _chats("""
    Can you explain {concept} to me?
    Of course. How much do you already know about it?
    Almost nothing, so please start from the very beginning.
    I learned about it at school, but that was twenty years ago.
    Quite a lot. I only want to know why it matters in practice.

    I need to explain {concept} to {reader}.
    Happy to help. Would you like a short spoken version or a written one?
    A spoken version of about two minutes, please.
    Written, with one small example and no difficult words.

    What is photosynthesis, in short?
    Plants use sunlight, water and carbon dioxide to make sugar, and they release oxygen.
    So what happens to a plant at night?
    Why do most leaves look green, then?
    Can you say that again so a seven-year-old would understand it?

    Why do prices go up over time?
    Often because people want to buy more than is on offer, or because making things costs more.
    And who decides what to do about it?
    Can prices also fall for a long time? Is that good or bad?
    """),
)

# How to do something

SLOTS["task"] = _items("""
fix a dripping tap | remove a red wine stain from a carpet | sharpen a kitchen knife |
paint a small bedroom | change a bicycle tyre | grow tomatoes on a balcony | bake a loaf of bread |
clean a greasy oven | hang a heavy mirror | repot a houseplant | iron a shirt properly |
back up the photos on a phone | make a compost heap | unclog a kitchen sink | sew on a button |
cook fluffy rice | set up a home Wi-Fi network | train a puppy to sit |
remove mould from a bathroom wall | descale a kettle | put up a set of shelves |
make cold brew coffee | plant a hedge | wash a wool sweater | silence a squeaky door |
pickle cucumbers | poach an egg | write a simple budget | clean a computer keyboard |
light a campfire | polish leather shoes | fold a fitted sheet | dry fresh mint | tie a bow tie |
make yoghurt at home | prune a rose bush | assemble a flat-pack wardrobe | trim a fringe at home |
bleed a radiator | make a paper lantern | freeze fresh herbs | insulate a draughty window |
sort old family photos | waterproof a tent | make candles | build a bird box |
mend a hole in a pair of jeans | set up a fish tank | clean a mattress | record a podcast at home |
make fresh pasta | get rid of fruit flies | pack fragile plates for a move | lay a small patio |
wrap an oddly shaped gift | reset a tripped fuse | start a herb garden
""")

SLOTS["without"] = _items("""
special tools | spending much money | making a mess | any experience | asking for help |
buying anything new | watching hours of videos | a big workspace
""")

HOW_TO = Domain(
    "howto",
    _lines("""
    How do I {task}?~
    What is the best way to {task}?~
    Give me step-by-step instructions to {task}.~
    I've never tried to {task} before. Where do I start?~
    I'm planning to {task} soon. What's the simplest way?~
    What tools or supplies do I need to {task}?
    What mistakes do people usually make when they {task}?
    Can I {task} without {without}?
    Write a beginner's guide on how to {task}.~
    Make a checklist I can follow to {task}.~
    My {relative} wants to {task} but has no experience. What advice would you give?~
    How long does it take to {task}, and what does it involve?
    I tried to {task} once and it went badly. What might I have done wrong?
    Is it hard to {task}? Be honest, I'm not very good with my hands.
    What should I watch out for when I {task} for the first time?
    Walk me through how to {task}, one step at a time.~
    Explain how to {task} in [4-8] short steps.
    Any tips on how to {task}?~
    Two friends gave me opposite advice on how to {task}. What would you do?
    Which step matters most when you {task}, and which can I skip?
    I watched someone {task} and it looked so easy. How is it done?~
    """),
    _lines("""
    Number the steps.
    Mention anything I should be careful about.
    I only have basic tools.
    Keep it short, I'm reading on my phone.
    Start with a list of what I need.
    Assume I have never done this.
    Add one tip that most people don't know.
    No long introduction, please.
    Say how I can tell that it worked.
    Explain why each step matters.
    """),
    _chats("""
    I want to {task}. Can you help?
    Sure. Do you already have everything you need, or should we begin with a shopping list?
    I have nothing yet, so start with the list.
    I think I have it all. Just give me the steps.
    Let's keep costs low. What can I leave out?

    How do I poach an egg?
    Simmer water with a splash of vinegar, slide the egg in, and lift it out after three minutes.
    My eggs always fall apart in the water. Why?
    Can I do several at once for a breakfast with six people?

    How can I {task}?
    The short answer is: prepare well, take your time, and test the result before you clean up.
    That's a bit vague. Can you give me real steps?
    What does preparing well mean here, exactly?
    """),
)

# Stories and poems

SLOTS["hero"] = _items("""
a lighthouse keeper | a shy librarian | a retired astronaut | a young baker | a lonely robot |
a one-eyed cat | a travelling clockmaker | a fisherman's daughter | a nervous dragon |
a night-shift nurse | a sleepless boy | a stubborn donkey | a forgetful wizard |
a street musician | a mountain guide | a twelve-year-old inventor | a postman on his last day |
a queen without a country | a detective afraid of the dark | a sleepy owl | a tired superhero |
a gardener with a secret | a truck driver far from home | a tea-loving ghost |
a weather forecaster | a chess champion | a beekeeper | a little snail | a rival cook |
an old tailor | a young key collector | a ship's cook | a space miner | an honest thief |
a musical wolf | a piano teacher | a bored prince | a colour-blind painter | a train conductor |
a museum guard | a lost penguin | a mapmaker | a village doctor | a puppet | a homesick swimmer
""")

SLOTS["deed"] = _items("""
finds a letter meant for someone else | opens a door that was never there before |
must keep a promise made long ago | loses the one thing that matters | makes an unlikely friend |
misses the last boat home | hears music nobody else can hear | wakes up in the wrong town |
has to choose between two homes | discovers a hidden garden | gets a phone call from the past |
tries to bring back the rain | learns to say sorry | takes the blame for a friend |
finds an egg in the snow | is invited to a strange dinner | wins a prize by mistake |
has one day to save the village | follows a trail of blue feathers | meets a stranger on a bridge |
inherits a broken clock | decides to leave for good | tells a small lie that grows |
cannot stop laughing | gets stuck in a lift overnight | builds something impossible |
comes home after ten years | finally asks for help | finds a map inside an old coat |
must cross the desert on foot | wakes up with a new voice | receives a gift without a card |
learns that the moon is late | rescues an old enemy | starts a rumour | teaches a crow to talk |
has to give a speech | forgets an important name | sees the sea for the first time |
plants a very odd seed
""")

SLOTS["place"] = _items("""
a harbour town in winter | a station where no train stops | a village on stilts | a desert inn |
an empty shopping centre | a space station | a snowed-in school | a floating market |
a lighthouse | an old theatre | a forest of glass | a small bakery at dawn | a night café |
a town with no roads | a hospital waiting room | a flooded library | a castle kitchen |
a petrol station at midnight | a city under the sea | a crowded port | a mountain hut |
a laundrette | a fairground in autumn | a quiet suburb | a vineyard | a radio station |
a football stadium after the game | a hotel with one guest | a rooftop garden | a coal town |
an airport during a storm | a zoo after closing time | a canal town | a repair shop for toys |
a school gym | a frozen valley | a secret room in a museum | a bookshop in the rain |
a tea plantation | an abandoned railway station
""")

SLOTS["theme"] = _items("""
the first snow of the year | a long train ride | my grandmother's kitchen | the end of summer |
an old dog | a city waking up | losing a glove | friendship over a long distance | the moon |
a thunderstorm | learning to ride a bike | the smell of rain | an empty chair | moving house |
homemade soup | Monday mornings | a broken umbrella | the colour blue | waiting for a letter |
a garden in spring | the sound of the sea | being late | a river in flood | growing older |
courage | silence | a new baby | the last day of school | a candle | forgiveness | bread |
stars seen from a field | a stubborn cat | a quiet Sunday | wind in the trees | small kindnesses |
coffee before sunrise | a lost key | autumn leaves | the night before a journey | a paper boat |
old photographs | hope | traffic | a sleeping child
""")

SLOTS["form"] = _items("""
haiku | limerick | sonnet | short free-verse poem | rhyming poem of four lines | lullaby |
ballad of three verses | prose poem | nursery rhyme | poem of ten short lines | song with a chorus
""")

SLOTS["genre"] = _items("""
mystery | fairy tale | ghost story | science fiction story | comedy sketch | bedtime story |
western | love story | fable | pirate story | spy story | fantasy tale | historical story |
folk tale
""")

SLOTS["first_line"] = _items("""
The bell rang, although there was no bell. | Nobody had used the north road since the flood. |
On the third day the fish began to speak. | My brother kept the sea in a jar. |
The last bus left without a driver. | It was the kind of silence that waits for an answer. |
She had packed for everything except good news. | The house was for sale again. |
Somebody had painted the moon. | We were told never to feed the statue. |
The recipe called for one impossible thing. | By noon, all the clocks had agreed. |
There was a stranger in the family photo. | He returned the book eighty years late. |
The lift stopped at a floor that did not exist. | At first, the rain smelled of oranges. |
I was hired to count the birds. | The letter had no stamp and no sender. |
Every winter the lake gave something back. | Grandfather lied about the island.
""")

CREATIVE = Domain(
    "creative",
    _lines("""
    Write a short story about {hero} who {deed}.~
    Write a poem about {theme}.~
    Write a {form} about {theme}.
    Tell me a {genre} set in {place}.~
    Write the opening paragraph of a {genre} about {hero}.
    I need a bedtime story about {hero} for my {child}.~
    Write a scene in which {hero} and {hero2} meet in {place}.~
    Continue this story: "{first_line}"~
    Write a {genre} that begins with this sentence: "{first_line}"~
    Give me a plot outline for a {genre} in which {hero} {deed}.~
    Describe {place} in one vivid paragraph, without using the word "beautiful".
    Write a dialogue between {hero} and {hero2} about {theme}.~
    Write a fable about {hero}, with a clear lesson at the end.~
    Invent [3-6] titles for a novel about {hero} who {deed}.
    Write a letter from {hero} to an old friend, sent from {place}.~
    Tell a story in exactly [4-9] sentences about {theme}.
    Write two short verses about {theme}: one happy, one sad.
    Write a monologue for {hero} who {deed}.~
    Could you write something funny about {theme}?
    My writing group set this exercise: {place}, {theme}, and no adjectives. Show me an example.
    Write the last page of a {genre} in which {hero} {deed}.~
    """),
    _lines("""
    Keep it under [100-300/50] words.
    End on a hopeful note.
    Make it funny.
    Give it a title.
    Use simple language that a child can follow.
    Surprise me at the end.
    The mood should be quiet and a little sad.
    No clichés, please.
    Include a small detail about the weather.
    It should be suitable for children.
    Use plenty of sound and smell.
    Keep the sentences short.
    Make it warm and gentle.
    """),
    _chats("""
    Write a poem about {theme}.
    Gladly. Do you want it to rhyme?
    Yes, but keep the rhymes simple.
    No rhymes. Four lines are enough.
    You decide, as long as it makes my {relative} smile.

    I want to write a story about {hero} who {deed}.
    What a nice idea. Where does it take place, and who gets in the way?
    It takes place in {place}. The rest is up to you.
    Let {hero2} get in the way. Please write the first scene.
    I have no idea yet. Suggest three options.

    Write one sentence that could start a ghost story.
    Every night at two, the stairs counted themselves aloud, and last night they counted one more.
    I love it. Now write the next three sentences.
    Make it less scary, it's for children aged six.
    """),
)

# Rewrite and summarise

SLOTS["passage"] = _items("""
Due to the fact that the lift is at this point in time out of order, all residents are kindly asked
to make use of the stairs until such time as the repair has been completed. |
We got to the station late because of the traffic and the train was gone, so we took a taxi which
cost a fortune, and then the hotel had given our room to someone else. |
The library will close at {time} on {weekday} for a staff meeting. Books may be returned through
the slot by the door. No fines will be charged for that day. |
Our bakery started in a garage in 1994 with one oven. Today we have [3-9] shops and sixty bakers,
but we still use the same sourdough starter and still open at six. |
hey, cant make it tmrw, car broke down again. can we do {weekday} instead? sorry about this |
I am writing to say that the soup was cold, the waiter was rude, and nobody said sorry. We will not
come back and we will tell all our friends. |
The committee discussed the new playground. Some members wanted more swings, others more shade. A
decision was put off until {date}, when costs will be known. |
Walking every day improves sleep and mood. It costs nothing and needs no equipment except shoes.
Even fifteen minutes help, and most people find it easier to keep up than going to a gym. |
The river froze early that year. Children skated to school, and the ferryman, who had nothing to
do, sold hot chestnuts on the ice until the thaw came in March. |
You forgot to send the report again. I needed it yesterday. Send it now. |
The experiment was performed by the students, and the results were written down by the teacher,
after which the equipment was cleaned and put away by two volunteers. |
Sales grew by [4-18] percent this quarter, mostly thanks to online orders. Costs rose as well,
because shipping became more expensive. We expect a quieter spring. |
Bees visit flowers to collect nectar. As they move, pollen sticks to their legs and is carried to
the next flower. Without this service many fruits would not grow. |
Me and {name} was going to the market when we seen a dog what had no collar, so we brung it home. |
{name} joined the company five years ago as a trainee. Since then she has led two projects, trained
new staff and never missed a deadline. I recommend her warmly. |
The flat is bright and quiet, with a small balcony facing the garden. It has one bedroom, a new
kitchen and a bath. Shops and trams are two minutes away. Pets are welcome. |
Employees are reminded that the utilisation of company vehicles for purposes of a private nature is
not permitted unless prior authorisation has been obtained in writing. |
I think that maybe we should possibly consider whether it might be a good idea to perhaps start the
meeting a little bit earlier than we usually do. |
The museum's new wing shows [40-90/10] paintings by local artists. Entry is free on the first
{weekday} of each month. Guided tours start at {time} and last about an hour. |
Our dog ran away on {weekday} near the park. He is small, brown and shy, and wears a green collar.
Please don't chase him, just call us. |
Solar panels turn sunlight into electricity. They work best on bright, cool days. The power can be
used at once, stored in a battery or sold to the grid. |
Thanks for your application. We had many good candidates and we chose somebody else. We keep your
papers for six months. Good luck. |
The storm took down three trees and a fence. Nobody was hurt. Power was back by {time}, and the
school opens again on {weekday}, except for the gym, where the roof leaks. |
To make the tea, boil water, wait two minutes, pour it over the leaves, and let it stand for four
minutes. Too hot and it turns bitter, too short and it tastes of nothing. |
The book follows three sisters who inherit a failing hotel. It starts slowly, but the second half
is funny and sad at once, and the ending took me by surprise. |
This product is bad. It broke. I want money back. Your service never answers the phone. |
In the old days the whole village met at the well. People fetched water, but mostly they came for
news. When pipes were laid, the talk moved to the bakery. |
Remote work saves travel time and money. Yet many people miss their colleagues, and new staff learn
more slowly. Most firms now mix days at home and days in the office. |
The hike starts behind the church, climbs through pine woods for an hour, and ends at a stone hut
with a view of the lake. Bring water, since the spring is dry in summer. |
Please note that the swimming pool's opening hours have changed. From {date} we open at {time} and
close at nine in the evening. Swimming lessons are not affected. |
My neighbour plays the trumpet every night after eleven. I have asked politely, twice. The walls
are thin and I get up at five. I don't know what else to do. |
The town will plant [200-800/100] trees along the main streets. Each tree costs about ninety
dollars. The mayor says they will cool the streets; critics say the money should fix potholes. |
He opened the window. It was cold. He saw the snow. He was happy. He called his sister. She came. |
The phone has a great camera and a bright screen. The battery is the weak point: it rarely lasts
until evening. If you travel a lot, you will need a charger in your bag. |
Volunteers cleaned the beach on {weekday} and filled [30-90/5] bags. Most of it was plastic, but
they also found a wedding ring, which has been handed to the police. |
Sleep has several stages. In deep sleep the body repairs itself. In dream sleep the brain sorts
what it learned. A night is made of four to six such rounds. |
We regret to inform you that your parcel could not be delivered because no person was present at
the address. A second attempt will be made on {date}. |
The recipe is easy. Fry onions, add lentils and stock, cook for half an hour, then stir in spinach
and lemon. It keeps for three days and tastes better on the second. |
I'm really sorry but I broke your blue vase while I was dusting and I didn't know how to tell you
so I put it in the cupboard. I'll pay for it. |
Trains between the two cities will run every thirty minutes from {month}. Tickets stay the same
price, but seats must be booked on weekends. Bikes travel free before nine. |
Our school wants phones out of the classroom. Teachers hope for better attention. Some parents
worry that they can't reach their children. A trial will run until {month}. |
The coffee plant grows best on cool mountain slopes. Warmer weather pushes it uphill, where there
is less land. Farmers are testing new kinds that stand the heat. |
Attention all staff!!! The fridge is NOT a bin. Whoever left fish in there since last month, take
it out TODAY. |
The clinic moved to a larger building with a lift and free parking. Appointments can be made by
phone or online. Walk-in hours are every {weekday} from {time}.
""")

SLOTS["register"] = _items("""
friendlier | more formal | more polite | clearer | less wordy | more professional | warmer |
simpler | more cheerful | more direct | more lively | more neutral
""")

SLOTS["medium"] = _items("""
a text message | a short news item | a notice for the front door | a social media post |
an entry in a diary | a radio announcement | a formal letter | a note to a friend |
a headline and one sentence | three bullet points | a short poem | a dialogue between two people |
a tweet-length post | an e-mail to the whole team | a story for small children | a telegram
""")

REWRITE = Domain(
    "rewrite",
    _lines(r"""
    Summarise this text in one sentence:\n\n{passage}
    Rewrite the following so it sounds {register}.~\n\n{passage}
    Can you make this {register}?~\n\n"{passage}"
    Turn this into {medium}:\n\n{passage}
    Shorten this to about half its length.\n\n{passage}
    Proofread and improve this text.~\n\n{passage}
    What is the main point of this?\n\n"{passage}"
    Rewrite this for {reader}:\n\n{passage}
    Please summarise in [2-4] bullet points: {passage}
    Give me a title and a one-line summary for this text.\n\n{passage}
    "{passage}"\n\nHow would you say this in a way that is {register}?
    Here is a draft. Edit it so that it is {register}, and tell me what you changed.\n\n{passage}
    Write this again using only short sentences:\n\n{passage}
    tl;dr of this please: {passage}
    Rewrite this from the point of view of someone else involved.\n\n{passage}
    Paraphrase the text below without losing any facts.~\n\n{passage}
    I have to read this out in a meeting. Make it {register}.~\n\n{passage}
    Give me two alternative versions of this, one formal and one casual:\n\n{passage}
    {passage}\n\nPlease retell this as {medium}.
    What is missing or unclear in this text? Then rewrite it.~\n\n{passage}
    """),
    _lines("""
    Keep the meaning the same.
    Don't add anything new.
    Use plain words.
    Fix any grammar mistakes too.
    Just give me the new text, no comments.
    Keep it roughly as long as it is.
    Use British spelling.
    Leave names and dates as they are.
    Avoid the passive voice.
    It should not sound like a robot wrote it.
    Keep it polite.
    I'm sending it today, so it should be ready to use.
    """),
    _chats(r"""
    Summarise this in one sentence: {passage}
    Here is the short version: the text says what happened and what will change, with a few details.
    That's too general. Mention the most important detail.
    Could you use at most twelve words and keep the facts?

    Can you make my text {register}?
    Sure, please paste it here.
    {passage}
    Here it is: "{passage}"

    Make this shorter: "I would like to let you know that I will not be able to come."
    Here you go: "I'm afraid I can't come."
    Now add a friendly reason without lying too much.
    A bit more formal, please. It goes to my boss.
    """),
)

# Word problems

SLOTS["goods"] = _items("""
apples | pencils | oranges | stickers | marbles | cookies | eggs | tickets | postcards | bananas |
notebooks | cupcakes | balloons | seashells | buttons | muffins | candles | tulips | lemons |
trading cards | beads | peaches | sandwiches | crayons | toy cars | chocolates | bread rolls |
badges | stamps | plums | tomatoes | envelopes | carrots | lollipops | batteries | roses |
light bulbs | coins | magnets | keyrings
""")

SLOTS["bag_item"] = _items("""
marbles | buttons | beads | balloons | socks | crayons | pens | badges | balls | caps | cubes
""")

SLOTS["ware"] = _items("""
a jacket | a lamp | a bicycle helmet | a backpack | a pair of boots | a rug | a kettle | a tent |
a desk chair | a guitar | a printer | a raincoat | a coffee machine | a suitcase | a sleeping bag |
a set of pans | a bookcase | a scarf | a pair of headphones | a garden table | a watch |
a blender | a skateboard | a mirror | a winter coat | a toaster | a camera bag | a yoga mat |
a dress | a board game | a tool box | a quilt | a vase | a fan | a football | a wallet |
a hammock | a keyboard | a pair of jeans | a wool hat
""")

SLOTS["place_to"] = _items("""
the coast | the airport | the next village | a lake | the farm | a campsite | the capital |
the stadium | a friend's house | the border | the mountains | the market town | the museum |
the old mill | the harbour | the university
""")

MATHS = Domain(
    "maths",
    _lines("""
    {name} has [20-60] {goods} and gives [3-18] of them to {name2}. How many are left?~
    A box holds [6-24] {goods}. How many {goods} are there in [4-15] boxes?~
    {name} buys [3-9] {goods} at $[1-4] each and pays with a $50 note. What is the change?~
    A train travels at [60-140/10] km/h for [2-5] hours. How far does it go?~
    The price of {ware} is $[30-90/10], reduced by [10-50/10] percent. What do I pay?~
    {name} reads [12-35] pages a day. How long will a book of [210-480/10] pages take?~
    A rectangular garden is [8-25] m long and [4-15] m wide. What are its area and its perimeter?~
    {name} and {name2} share [24-96/2] {goods} equally. How many does each of them get?~
    Three friends split a bill of $[48-150/3] and tip [10-20/5] percent. What does each pay?~
    It takes [4-8] people [6-12] days to build a wall. How long would [2-3] people need?~
    {name} is [4-12/2] years older than {name2}. Together they are [30-70/2]. How old are they?~
    A car uses [5-9] litres per 100 km. How much fuel is needed for [150-650/50] km?~
    The mean of three numbers is [15-30]. Two of them are [5-12] and [13-24]. What is the third?~
    A recipe for [4-6] people needs [200-600/50] g of flour. How much is needed for [8-15] people?~
    {name} saves $[4-12] a week. After how many weeks is there enough for {ware} at $[40-120/10]?~
    A tank with [200-900/50] litres drains at [4-15] litres a minute. When will it be empty?~
    A class has [20-32/4] pupils, and [25-75/25] percent walk to school. How many is that?~
    I put $[500-5000/500] in the bank at [2-5] percent a year. How much is it after [2-4] years?~
    A bag holds [3-8] red and [4-9] blue {bag_item}. What is the chance of drawing a red one?~
    A film starts at {time} and lasts [95-165/5] minutes. When does it end?~
    {name} cycles [12-40] km to {place_to} at [10-20/5] km/h. How many minutes does it take?~
    A shop sells [4-8] {goods} for $[3-6] or [10-15] for $[8-12]. Which offer is cheaper per piece?~
    Write a word problem about {goods} that needs two steps, then solve it.
    If [2-5] {goods} cost $[4-10/2], how much do [12-30] of them cost?~
    {name} has twice as many {goods} as {name2}. Together they have [30-90/3]. How many has each?~
    A bus to {place_to} leaves every [10-25/5] minutes. How many buses leave between 8 and noon?~
    What is [15-95/5] percent of [120-960/20], and how can I do that in my head?
    """),
    _lines("""
    Show your work.
    Explain each step.
    Just the answer, please.
    Explain it so that a child can follow.
    Please check your answer at the end.
    Write down the formula you use.
    My {child} needs this for homework.
    Think it through step by step.
    Give a hint first, then the solution.
    Is there a quick way to do this?
    Put the final answer on its own line.
    """),
    _chats("""
    {name} has [20-60] {goods} and gives away [3-18]. How many are left?
    Subtract the number given away from the number at the start.
    Okay, and what is the final number?
    Please write that as an equation and solve it.

    What is 15 percent of 80?
    It is 12. Ten percent is 8, half of that is 4, and 8 plus 4 makes 12.
    Nice trick. Use it for [15-45/10] percent of [120-360/20].
    Does that also work for 35 percent? Show me with 140.

    I'm bad at fractions. Can you quiz me?
    Sure. First question: what is one half plus one quarter?
    Three quarters, I think. Next one, a bit harder!
    I don't know. Please explain it with {goods}.

    How long do I need for [60-240/20] km at [40-80/20] km/h?
    Divide the distance by the speed to get the time in hours.
    Please give me the result in hours and minutes.
    And if I take a break of [15-45/5] minutes on the way?
    """),
)

# Small coding tasks

SLOTS["py_task"] = _items("""
returns the second largest number in a list | checks whether a word is a palindrome |
counts how often each word occurs in a text file | flattens a nested list |
removes duplicates from a list but keeps the order | converts Roman numerals to integers |
merges two sorted lists | reads a CSV file and prints the average of one column |
validates an e-mail address in a simple way | rotates a list by k places |
finds all prime numbers below n | groups a list of words by their first letter |
computes the running average of a stream of numbers | generates a random password |
turns a snake_case name into camelCase | finds the longest common prefix of some strings |
retries a failing call three times | splits a list into chunks of a given size |
parses a date such as "3 May 2021" | counts the vowels in a sentence | simulates rolling two dice |
renders a list of dicts as a text table | checks whether brackets are balanced |
returns the n-th Fibonacci number | lists the ten largest files in a folder |
converts seconds to hours, minutes and seconds | inverts a dictionary |
measures how long a call takes | finds two numbers in a list that add up to a target |
reads JSON from a URL and prints one field | replaces several words in a text at once |
sorts people by last name, then by age | transposes a matrix |
compares two folders and reports missing files | draws a text histogram |
caches the result of a slow function | walks through a tree of nodes level by level |
finds the most frequent letter in a string | computes the distance between two points on a map |
yields lines of a huge file in reverse order | formats a number with thousands separators
""")

SLOTS["js_task"] = _items("""
debounces another function | deep-copies an object | formats a date as "12 May 2023" |
sorts an array of users by age | shows a countdown on a page | validates a sign-up form |
fetches a list of posts and shows their titles | toggles dark mode and remembers the choice |
removes falsy values from an array | capitalises every word in a string |
turns query parameters into an object | waits for a number of milliseconds |
groups orders by customer | checks whether two arrays hold the same items |
copies text to the clipboard | adds a "back to top" button | shuffles an array |
filters a table as the user types | counts the characters left in a text area |
builds a simple image slider | picks a random colour | runs promises one after another |
finds the difference between two dates in days | converts a nested object into flat keys |
limits how often a scroll handler runs | saves a to-do list in local storage |
closes a menu when the user clicks outside it | truncates a long string with dots |
sums the values of an object | makes a list sortable by dragging |
parses a CSV string into objects | reads a file chosen by the user | retries a fetch that fails |
finds the longest word in a sentence | chunks an array into pieces |
loads images only when visible | escapes HTML in user input | converts Celsius to Fahrenheit |
memoises a pure function | merges two arrays without duplicates
""")

SLOTS["sql_task"] = _items("""
lists the ten customers who spent the most last year | counts the orders per month |
finds customers who never ordered anything | shows the average order value per country |
lists products that were never sold | finds duplicate e-mail addresses among customers |
returns the latest order of each customer |
shows the three best-selling products in each category | computes a running total of sales by day |
finds orders with more than five items | lists customers who ordered in both {month} and {month2} |
shows products that are out of stock | counts new customers per week |
returns the second most expensive product | finds orders placed on a weekend |
shows the share of each category in total sales |
lists customers whose last order is over a year old | deletes test orders but keeps the real ones |
raises the price of all toys by five percent | shows the days without any order |
finds the month with the highest sales | lists pairs of products often bought together |
shows orders whose total does not match their items | counts customers per city, largest first |
finds the median order value | lists customers with more than three cancelled orders |
shows the time between first and second order | returns every fifth order as a sample |
moves old orders to an archive table | finds products whose name starts with a digit |
shows the number of repeat buyers per month | compares this year's sales with last year's |
lists customers without a phone number | ranks products by profit |
finds the customers who used a coupon twice | shows the most common delivery city per product |
returns page three of the order list, twenty per page | sets missing countries to "unknown" |
finds orders shipped later than promised | counts orders by status in one row
""")

SLOTS["sh_task"] = _items("""
renames all .jpeg files in a folder to .jpg | deletes log files older than thirty days |
counts the lines of code in a project | finds the ten biggest files on a disk |
backs up a folder to a dated archive | checks whether a website is up |
replaces a word in many files | shows which process uses a given port |
sorts a file and removes duplicate lines | downloads a list of URLs from a text file |
converts all PNG images in a folder to JPEG | prints the third column of a CSV file |
watches a folder and runs a command on changes | warns me when the disk is almost full |
sorts files into folders by extension | extracts every archive in the current folder |
compares two folders | shows the newest file in a folder |
kills a program that runs longer than an hour | makes a numbered list of files |
finds empty folders and removes them | prints lines that appear in one file but not the other |
splits a large file into parts | counts how often each IP address occurs in a log |
sends the output of a command to a file and the screen |
adds a line to a file only if it is missing | creates a new project folder with a README |
lists all users who can log in | repeats a command until it succeeds |
prints the size of each subfolder | copies only files changed today |
changes spaces in file names to underscores | asks yes or no before it continues |
shows a progress counter in a loop | syncs a folder to another machine |
reads settings from a file of key=value lines | finds text in all .py files but skips one folder |
trims trailing spaces in many files | checks that three programs are installed |
lists the commits of the last week by author
""")

SLOTS["code_idea"] = _items("""
list comprehensions in Python | closures in JavaScript | inner and left joins in SQL |
pipes in the shell | decorators in Python | promises in JavaScript | indexes in SQL |
exit codes in bash | generators in Python | the event loop in JavaScript |
GROUP BY and HAVING in SQL | environment variables | context managers in Python | arrow functions |
transactions in a database | file permissions on Linux | the spread operator |
window functions in SQL | regular expressions | dataclasses in Python |
optional chaining in JavaScript | foreign keys | shell quoting | recursion |
virtual environments in Python | async and await | normal forms in databases | cron jobs |
binary search | hash tables | unit tests | git branches | type hints in Python | JSON | REST APIs |
big-O notation | stacks and queues | == and === in JavaScript | string formatting in Python |
lambda functions | sets in Python | try and except in Python | subqueries in SQL |
branches and tags in git
""")

SLOTS["snippet"] = [
    "def total(xs):\n    result = 0\n    for x in xs:\n        result += x\n        return result",
    "def add(item, items=[]):\n    items.append(item)\n    return items",
    "for i in range(len(names)):\n    print(names[i + 1])",
    'age = input("Age? ")\nif age > 17:\n    print("Welcome")',
    "nums = [1, 2, 2, 3]\nfor n in nums:\n    if n == 2:\n        nums.remove(n)",
    "def is_even(n):\n    if n % 2 = 0:\n        return True\n    return False",
    'words = "a b c".split\nprint(len(words))',
    "count = 10\ndef step():\n    count -= 1\nstep()",
    'with open("notes.txt") as f:\n    pass\nprint(f.read())',
    'total = "5" + 3\nprint(total)',
    "class Dog:\n    def bark():\n        print('woof')\n\nDog().bark()",
    "def fact(n):\n    return n * fact(n - 1)\n\nprint(fact(5))",
    "prices = dict(tea=2, coffee=3)\nfor name, price in prices:\n    print(name, price)",
    "squares = [x * x for x in range(1, 5)]\nprint(squares[4])",
    "import time\nstart = time.time\nwork()\nprint(time.time() - start)",
    "const total = [1, 2, 3].map((x) => { x * 2 });\nconsole.log(total);",
    "for (var i = 0; i < 3; i++) {\n  setTimeout(() => console.log(i), 100);\n}",
    "const data = fetch('/api/users').json();\nconsole.log(data.length);",
    "if (user.name = 'admin') {\n  showPanel();\n}",
    "const nums = [10, 9, 1];\nnums.sort();\nconsole.log(nums);",
    "function area(w, h) {\n  return\n    w * h;\n}",
    "console.log(0.1 + 0.2 === 0.3);",
    "const user = null;\nconsole.log(user.name);",
    "let s = 'hello';\ns[0] = 'H';\nconsole.log(s);",
    "SELECT city, COUNT(*) FROM customers WHERE COUNT(*) > 5 GROUP BY city;",
    "SELECT * FROM orders WHERE shipped_at = NULL;",
    "SELECT name, MAX(price) FROM products;",
    "SELECT c.name FROM customers c, orders o WHERE o.total > 100;",
    "UPDATE products SET price = price * 1.1;",
    "SELECT * FROM orders WHERE created_at BETWEEN '2023-01-31' AND '2023-01-01';",
    "for f in $(ls *.txt); do\n  cat $f\ndone",
    'if [ $name == "" ]; then\n  echo "no name"\nfi',
    "count = 0\necho $count",
    "cat data.txt | sort > data.txt",
    "cd $BUILD_DIR\nrm -rf *",
]

SLOTS["program"] = _items("""
a to-do list | a quiz game | a tip calculator | a password generator | a number-guessing game |
a unit converter | a hangman game | a simple timer | a weekly budget tracker |
a flash-card trainer | a weather report from a public API | a bookmark manager | a habit tracker |
a dice game | a currency converter | a text adventure | a word counter | a shopping list |
a typing test | a calendar of birthdays | a workout log | a recipe scaler |
a noughts-and-crosses game | an expense splitter | a list of borrowed books | a mood diary
""")

CODING = Domain(
    "coding",
    _lines(r"""
    Write a Python function that {py_task}.~
    I need a small Python script that {py_task}.~
    How would you write a function in Python that {py_task}?~
    What's a clean way in Python to write something that {py_task}?~
    Write a unit test for a Python function that {py_task}.
    Write a JavaScript function that {js_task}.~
    In plain JavaScript, without any library, write code that {js_task}.
    I'm building a small website. Can you give me JavaScript that {js_task}?~
    Write a SQL query that {sql_task}.~
    I have the tables customers, orders and products. I need a query that {sql_task}.~
    Write a bash script that {sh_task}.~
    Is there a one-line shell command that {sh_task}?~
    I'd like a small command-line tool for Linux that {sh_task}. Which language and why?
    What is wrong with this code?\n\n```\n{snippet}\n```
    This doesn't do what I expect. Can you find the bug and fix it?\n\n```\n{snippet}\n```
    Explain line by line what this code does.\n\n```\n{snippet}\n```
    Please review this snippet and suggest a better version.\n\n```\n{snippet}\n```
    Explain {code_idea} with a small example.
    I have a job interview and they may ask about {code_idea}. What should I say?
    When would I use {code_idea}, and when not?~
    Sketch the code for {program} in Python.~
    I want to build {program} as my first project. Which steps do you suggest?
    Write {program} as a single HTML page with JavaScript.
    """),
    _lines("""
    Add comments.
    Keep it as short as possible.
    Please explain how it works.
    Keep the names easy to read.
    I'm a beginner, so keep it readable.
    Only show the code.
    Mention edge cases.
    Please avoid clever tricks.
    Tell me how to test it.
    """),
    _chats("""
    Write a Python function that {py_task}.
    Sure. Should it raise an error on bad input, or return None?
    Raise an error, please, and add a docstring.
    Return None. And show me one example call.

    I need a SQL query that {sql_task}.
    Can do. Which database are you using?
    PostgreSQL, and the table names are customers, orders and products.
    SQLite. Please keep it simple.

    How do I reverse a string in Python?
    Use slicing: `text[::-1]` gives you the string backwards.
    How can I do the same in JavaScript?
    Why does that work? Explain the two colons.
    And if I want to reverse the words instead of the letters?

    Can you help me with a script that {sh_task}?
    Yes. Does it have to run on macOS as well, or only on Linux?
    Only on Linux, with bash.
    On both, so please avoid options that differ.

    I want to learn {code_idea}.
    Good choice. Shall we start with an example or with the theory?
    An example first, a really small one.
    Theory, but no more than five sentences.
    """),
)

# E-mails and letters

SLOTS["repair"] = _items("""
the broken heating | a leaking tap | the noisy pipes | mould in the bedroom | a faulty door lock |
the lift that keeps stopping | a cracked window | the weak water pressure | a dead socket
""")

SLOTS["leave"] = _items("""
a day off on {weekday} | two weeks of holiday in {month} | a half day for a dentist appointment |
an afternoon off for a school event | permission to work from home on {weekday} |
an unpaid week off in {month} | a later start on {weekday}
""")

SLOTS["fault"] = _items("""
arrived broken | never arrived | came in the wrong colour | fell apart after two weeks |
was charged twice | smells strongly of glue | looks used | was not the one I chose
""")

SLOTS["errand"] = _items("""
to my landlord about {repair} | to the building manager about {repair} |
to my manager asking for {leave} | to my boss asking for {leave} |
to an online shop because {ware} I ordered {fault} | to customer service because {ware} {fault} |
to a hotel asking for a late check-out on {date} | to my teacher because I was ill on {weekday} |
to a client explaining that the delivery will be [2-6] days late |
to my neighbours announcing a party on {date} | to the bank about a payment I don't recognise |
to a former colleague asking for a reference | to a company asking about summer jobs |
to my team thanking them for a hard month | to a restaurant to book a table for [4-14] on {date} |
to the council about a dangerous crossing near our school | to a friend who moved to {country} |
to my phone provider to cancel my contract | to my gym to pause my membership for [2-4] months |
to a professor asking for a short extension | to the school because my child has the flu |
to a job applicant we want to invite on {date} | to a job applicant we have to turn down |
to my grandparents thanking them for a gift | to a band asking if they can play on {date} |
to an airline about a suitcase lost on the way to {city} | to a museum asking for a group tour |
to a friend apologising for missing a birthday | to a plumber asking for a quote |
to all staff announcing a move to a new office in {month} | to my doctor to move my appointment |
to a new colleague who starts on {weekday} | to a supplier asking for a better price |
to a library suggesting longer opening hours | to my sports club resigning as treasurer |
to a neighbour whose dog barks all day | to a magazine in reply to an article about school meals |
to parents about a class trip to {city} | to my insurance company after a small car accident |
to a charity offering to help on weekends | to a photographer asking about prices for a wedding |
to a friend asking for the money I lent in {month} | to my tutor saying I want to change course |
to a customer who left a bad review | to an old school friend after many years
""")

SLOTS["card"] = _items("""
a birthday card for my {relative} | a thank-you card for a nurse |
a get-well card for a colleague | a card for a couple getting married |
a farewell card for our boss | a sympathy card for a neighbour |
a card for a friend who passed an exam | a card for new parents | a retirement card for a teacher |
a card for my {relative}'s graduation | a card to go with flowers | a postcard from {city} |
a housewarming card | a card for a fiftieth anniversary |
a good-luck card for a first day at work | a welcome card for an exchange student |
a Christmas card for clients | a card for my old coach
""")

SLOTS["tone"] = _items("""
polite | warm | formal | relaxed | short and friendly | respectful | clear | calm | sincere |
natural
""")

LETTERS = Domain(
    "letters",
    _lines("""
    Write an e-mail {errand}.~
    Draft a {tone} message {errand}.
    I have to write {errand}. Can you help me with the wording?~
    Please write a letter {errand}.~
    What would be a good subject line for an e-mail {errand}? Give me [3-6] options.
    Write a short note {errand}.~
    I need an e-mail {errand}, and it should sound like me, not like a lawyer.
    Write two versions of an e-mail {errand}: one formal, one relaxed.
    How should I begin and end an e-mail {errand}?~
    What tone is right for an e-mail {errand}? Then write a first draft.
    Write a few lines for {card}.~
    What can I write in {card}? I never know what to say.~
    Suggest [3-5] different texts for {card}.~
    I wrote to my landlord about {repair} on {date} and got no answer. Write a reminder.~
    Give me a template for an e-mail {errand}, with blanks that I can fill in.
    Write a {tone} e-mail {errand}. Sign it with {name}.
    English isn't my first language. Please help me write {errand}.~
    I'm a bit nervous about writing {errand}. What should I mention, and what should I leave out?
    Write a message of no more than [40-90/10] words {errand}.
    Something short and heartfelt for {card}, please.
    """),
    _lines("""
    Keep it under [80-160/20] words.
    Make it sound natural.
    Please be polite.
    No fancy words.
    Use a {tone} tone.
    Sign it {name}.
    Avoid stock phrases.
    It shouldn't sound too stiff.
    Leave a blank where my name goes.
    """),
    _chats("""
    I need to write {errand}.
    I can draft that for you. Should it sound formal or relaxed?
    Formal, and not longer than one paragraph.
    Relaxed, but still polite.
    You choose. Just sign it with {name}.

    Help me with the text for {card}.
    Of course. Is there anything personal you would like to mention?
    Yes, that we have known each other for [3-20] years.
    No, just something short and kind.
    Mention the trip to {city} we made together.

    Write a polite line to say I'll be late for a meeting.
    "I'm running about ten minutes late, please start without me. Sorry for the trouble."
    Make it more formal, since a client will be there.
    Now write one that moves the whole meeting to {weekday} at {time}.
    """),
)

# Lists and comparisons

SLOTS["pair"] = _items("""
tea and coffee | cats and dogs as pets | trains and planes | butter and margarine |
paper books and e-books | Python and JavaScript | a laptop and a tablet | yoga and pilates |
gas and electric cookers | city life and village life | jam and marmalade | wool and cotton |
a credit card and a debit card | frogs and toads | a lawyer and a notary |
baking soda and baking powder | solar power and wind power | weather and climate |
stocks and bonds | butterflies and moths | a violin and a viola | alligators and crocodiles |
a city and a town | running and swimming | contact lenses and glasses |
public and private schools | broccoli and cauliflower | honey and sugar |
watercolours and oil paints | a hotel and a hostel | a virus and a bacterium | rabbits and hares |
jogging and fast walking | herbs and spices | fixed and variable interest rates |
soccer and rugby | online courses and evening classes | a novel and a short story |
real trees and plastic Christmas trees | electric cars and petrol cars | comets and asteroids |
a simile and a metaphor | chess and checkers | a boss and a leader | remote work and office work |
fresh and frozen vegetables | lakes and ponds | leather and canvas shoes |
sweet potatoes and potatoes | a barometer and a thermometer
""")

SLOTS["choice"] = _items("""
rent or buy a home | get a cat or a dog | take the train or the car to work |
learn Spanish or French | buy a new phone or repair the old one | study at home or in the library |
work for a big or a small firm | go to the gym or exercise at home | bake or buy a birthday cake |
use a dishwasher or wash by hand | learn the piano or the guitar |
take a gap year or go straight to university | pay by card or cash | buy a desktop or a laptop |
holiday in the mountains or by the sea | cook every day or once a week |
keep a diary on paper or on a phone | shop once a week or every day |
join a choir or a theatre group | buy new or used furniture |
run in the morning or in the evening | paint the kitchen white or green |
adopt a puppy or an older dog | travel alone or with a group | hire movers or rent a van |
lease or buy a car | put savings in the bank or pay off a loan | fly or take the night train |
take a job abroad or stay near family | read the book or watch the film first |
get a bike or a bus pass | live alone or share a flat | have a big or a small wedding |
start a blog or a podcast | have a pond or a vegetable patch | use gas or charcoal for a barbecue |
grow plants from seed or buy seedlings | give money or a present | use an app or a paper calendar |
get up early or work late
""")

SLOTS["choice_wish"] = _items("""
Be honest about the downsides. | Give a clear recommendation at the end. | What matters most? |
I have to decide this week. | I go back and forth every day. |
My {relative} says it makes no difference. | I'd like to hear both sides. |
Tell me what you would need to know first. | Keep it short, please.
""")

SLOTS["list_of"] = _items("""
ways to save water at home | cheap and healthy lunches | board games for two |
things to pack for a hike | films for a family evening | questions to ask when viewing a flat |
trees that stay small | habits of good listeners | snacks for a long drive |
jobs that involve animals | uses for old newspapers | vegetables that grow in the shade |
books for someone who rarely reads | indoor activities for a rainy day |
musical instruments that are easy to start | birds seen in gardens |
excuses people make for not exercising | words that describe a good friend |
ways to reuse glass jars | places to hide a small present | foods rich in iron |
reasons to learn a second language | small gifts under ten dollars | tools every home should have |
skills you can learn in a month | ways to make new friends in a new city | warm-up exercises |
games for a children's party | signs that a plant gets too much water |
famous inventions that were accidents | breakfast ideas without eggs |
things to check before buying a used car | chores that children can do | soups for winter |
famous rivers and the countries they cross | ways to cut the power bill | flowers that bees like |
polite ways to say no | sports that need no equipment | documents to keep in a safe place |
phrases for ending a phone call | items for a first-aid kit | podcast topics about history |
desserts without an oven | good first pets | ice-breaker questions for a new team
""")

COMPARE = Domain(
    "compare",
    _lines("""
    What is the difference between {pair}?~
    Compare {pair}.~
    Make a table that compares {pair}.
    List the main similarities and differences of {pair}.~
    My {relative} thinks there is no real difference between {pair}. How would you answer?~
    Should I {choice}? {choice_wish}
    I can't decide whether to {choice}. {choice_wish}
    Is it better to {choice}? {choice_wish}
    Give me arguments for both sides: is it wiser to {choice}?
    Give me a list of [5-12] {list_of}.~
    Make a list of {list_of}.~
    Can you name [5-10] {list_of}?~
    I'm looking for {list_of}. What comes to mind?~
    Write a ranked list of [5-10] {list_of} and give a reason for each.
    List {list_of} and group them in a useful way.
    Explain {pair} in two short paragraphs, one for each.
    What are good reasons on each side if I have to {choice}?
    Explain {pair} to me as if I had never heard of either.
    Name [4-8] {list_of} and tell me which one is your favourite.~
    Write a short quiz of [3-6] questions about the difference between {pair}.
    Ask me [3-5] questions that would help me decide whether to {choice}.
    """),
    _lines("""
    Use bullet points.
    Keep each point to one line.
    I don't need a long answer.
    Please explain in simple terms.
    No more than [100-200/20] words.
    One example for each, please.
    I've never thought much about this, so start simple.
    A few lines will do.
    It's for a talk at school.
    I want to print it out.
    """),
    _chats("""
    Should I {choice}?
    That depends on your budget, your time and what you enjoy. What matters most to you?
    I don't know. Ask me a few questions to find out.
    Time. I'm busy with two small children.
    I just want whatever I'm less likely to regret.

    Give me a list of {list_of}.
    Happy to. How long should the list be, and is it for anyone special?
    Ten items, please, with a reason for each.
    Five are enough. It's only for me.

    What's the difference between {pair}?
    They have a lot in common, but they differ in how they are made or used and what they suit best.
    Can you be more concrete? A table would be good.
    Which differences would a beginner notice first?
    """),
)

# Facts: geography, science, history, food, health

SLOTS["question"] = _items("""
Why is the sky blue? | Why do cats purr? | How do birds find their way south? |
Why is the sea salty? | What causes thunder? | How do bees make honey? |
Why do onions make us cry? | How old is the Earth? | Why do we yawn? |
How does soap clean things? | Why do leaves change colour in autumn? | What makes bread rise? |
Why does ice float on water? | How do fish breathe? | Why do we have time zones? |
What is the largest desert in the world? | Which river is the longest in Africa? |
Why did people build pyramids? | Who invented the printing press? |
How did the Black Death spread? | Why did the Roman Empire fall? |
What started the First World War? | How did sailors navigate by the stars? |
Why is chocolate bad for dogs? | What is the healthiest way to cook vegetables? |
How much sleep do adults need? | Why do we need vitamin D? |
What happens in the body when we have a fever? | How do muscles grow? | Why do knees crack? |
What is a normal resting heart rate? | How does caffeine keep us awake? |
Why does bread go stale? | What gives chillies their heat? | How is cheese made? |
Where do bananas come from? | Why do volcanoes erupt? | What is the deepest part of the ocean? |
How are diamonds formed? | Why does the moon change shape? | How far away is the sun? |
Why do stars twinkle? | How do submarines sink and rise? |
Why do mosquitoes bite some people more than others? | Which countries have no coast? |
Why are flamingos pink? | How do chameleons change colour? |
What did people eat in the Middle Ages? | When did women first get the vote? |
Why was the Great Wall built? | How did ancient people make fire? |
Why does metal feel colder than wood? | What is the smallest bone in the body? |
Why do we get hiccups? | How do plants know when it is spring? | Is it bad to read in dim light? |
Why does popcorn pop? | How do planes stay in the air? | What makes a rainbow curve? |
Why do apples turn brown? | How does a compass work? | Why do some people sneeze in bright light?
""")

SLOTS["history"] = _items("""
the Roman Empire | the French Revolution | the Silk Road | the Industrial Revolution |
the Ottoman Empire | the fall of the Berlin Wall | the first Moon landing | the Renaissance |
the building of the Suez Canal | the Viking Age | the Great Depression | the Inca Empire |
the Cold War | the Hanseatic League | the invention of writing | the voyage of Magellan |
the Mongol Empire | the Great Fire of London | the Meiji period in Japan | the Apollo programme |
the kingdom of Mali | the Congress of Vienna | the Gold Rush in California | the age of steam |
ancient Athens | the Byzantine Empire | the Mughal Empire | the spread of printing |
the end of apartheid in South Africa | the Spanish flu of 1918 | the Bronze Age |
the American Civil War | the unification of Italy | the arrival of the potato in Europe |
the Maya civilisation | the first railways | the Crusades | the abolition of slavery in Britain |
the discovery of penicillin | the founding of the United Nations
""")

SLOTS["animal"] = _items("""
octopuses | penguins | elephants | honeybees | owls | bats | dolphins | camels | wolves | salmon |
sea turtles | hummingbirds | ants | polar bears | giraffes | squid | crows | beavers | kangaroos |
hedgehogs | sharks | earthworms | otters | snow leopards | storks | frogs | squirrels | whales |
spiders | seahorses | sloths | foxes | eels | flamingos | moles | parrots | jellyfish | gorillas |
dragonflies | reindeer
""")

SLOTS["food"] = _items("""
rice | olive oil | coffee | chocolate | cinnamon | tofu | cheese | saffron | jam | tea | vanilla |
pasta | bread | soy sauce | honey | maple syrup | pepper | yoghurt | rye bread | couscous | salt |
sugar | mustard | cocoa | turmeric | coconut milk | garlic | kimchi | maize | hummus | butter |
wasabi | vinegar | quinoa | sesame oil | ketchup | ginger | sourdough | marzipan | seaweed
""")

SLOTS["health"] = _items("""
drinking enough water | walking every day | sitting for long hours | skipping breakfast |
eating late at night | stretching before a run | taking a short nap | drinking coffee |
looking at screens before bed | eating more fibre | strength training after fifty |
taking cold showers | cutting down on sugar | working night shifts | doing breathing exercises |
wearing sunscreen | eating less salt | brushing your teeth twice a day | sleeping on your side |
swimming twice a week | cycling to work | laughing a lot | drinking milk | using a standing desk |
washing your hands often | carrying a heavy backpack | eating a vegetarian diet |
keeping a regular bedtime | wearing high heels | listening to loud music | spending time outdoors |
chewing slowly | getting too little daylight | gardening | dancing | flossing | eating fish |
yoga | going to the sauna | owning a dog
""")

FACTS = Domain(
    "facts",
    _lines("""
    {question}~
    My {relative} asked me this today: {question}~
    I've always wondered about this one. {question}~
    {question} Please add a fun fact on the same subject.
    What is the capital of {country}, and what is it known for?~
    Which languages are spoken in {country}, and which countries does it border?~
    What is the climate like in {country}?~
    Tell me something surprising about {country}.~
    What are the main foods that people eat in {country}?~
    Tell me about {history} and why it matters.~
    Why is {history} still worth knowing about?~
    Who were the most important people connected with {history}?~
    Give me a short timeline of {history}.
    What was daily life like for ordinary people during the time of {history}?~
    How do {animal} protect themselves, and what do they eat?~
    Where do {animal} live, and are they endangered?~
    Give me [3-6] little-known facts about {animal}.
    Where does {food} come from, and how did it spread around the world?~
    Is {food} good for you?~
    How should I store {food}, and how long does it keep?~
    What does science say about {health}?~
    What effect does {health} have on your health?~
    Is there any truth in what people say about {health}?~
    Write [3-6] quiz questions with answers about {country}.
    """),
    _lines("""
    Answer in one or two sentences.
    A short answer is fine.
    Just the key facts, please.
    It's for a school project.
    Keep it simple, I'm no expert.
    Give a bit of background as well.
    I'd like to tell my {child} about it.
    It came up at dinner last night.
    Use simple words.
    I'm just curious.
    We talked about it at work today.
    Please don't make it too long.
    """),
    _chats("""
    What is the capital of Australia?
    The capital of Australia is Canberra.
    Why isn't it Sydney?
    How far is it from the coast, roughly?
    And which city has the most people?

    {question}
    There is a short answer and a long one. Which would you like?
    The short one, in two sentences.
    The long one, but keep it easy to follow.

    Why does ice float on water?
    Water expands when it freezes, so ice is lighter than the same volume of liquid water.
    What would happen to lakes if ice sank instead?
    Do other liquids behave the same way?

    Tell me about {history}.
    Gladly. Are you more interested in the people, the events or the results?
    The people. Who were the most important ones?
    The results. What still affects us today?
    """),
)

# Brainstorming

SLOTS["venture"] = _items("""
a small bakery | a bicycle repair shop | a podcast about local history | a cat café |
a community garden | an app for learning birdsong | a second-hand bookshop | a travel blog |
a dog-walking service | a school newspaper | a ceramics studio | a vegan food truck |
a running club | a board-game night | a choir for beginners | a tutoring service | a toy library |
a line of scented candles | a mobile hairdresser | a youth theatre | a plant shop |
a soup kitchen | a coding club for girls | a cleaning company | a small brewery | a radio show |
a jazz trio | a newsletter about gardening | a barber shop | a repair café | a yoga studio |
a film festival | a hiking group | a handmade soap business | a language café | a chess club |
an ice-cream stand | a neighbourhood app | a photography studio | a charity run
""")

SLOTS["problem"] = _items("""
my flat gets too hot in summer | nobody reads the team's weekly report |
our meetings take too long | the children fight over the tablet | I always forget birthdays |
our club has too few young members | my desk is always a mess |
the local shop is losing customers | I can't get up in the morning |
our street has too much traffic | I spend too much on lunch | the dog is bored when I'm at work |
my team is spread over three time zones | we throw away too much food | I never finish books |
the class is noisy after lunch | our old people's home feels lonely on Sundays |
my plants keep dying | I check my phone all the time | our flat has very little storage |
guests never know where to park | my grandfather finds his phone confusing |
volunteers quit after a month | I get nervous in interviews | the office kitchen is always dirty |
my child refuses vegetables | I have lots of photos and no order |
new staff feel lost in the first week | the school run takes forever | we argue about chores |
tourists skip our village | I work from home and feel cut off | my bike was stolen twice |
our website gets many visits but no sales | my evenings vanish in front of the TV |
I can never decide what to cook | the bus stop has no shelter |
my students don't speak up in class | I have an hour free every day and waste it |
our garden is all shade
""")

SLOTS["project"] = _items("""
a birthday present for my {relative} | a theme for a summer party |
a rainy-day activity for ten children | a team outing for [8-25] people |
a school project about water | a short film without dialogue | a window display in {month} |
a fundraiser for the local animal shelter | a costume made from cardboard |
a surprise for an anniversary | a mural for a school wall | a talk at a science fair |
an unusual first date in {city} | a farewell gift for a teacher | a new use for an empty shop |
a family tradition for {month} | a game that needs only paper and pens | a menu for a picnic |
a logo for a swimming club | a topic for a photo series | a present that costs nothing |
a workshop for teenagers | a science experiment with kitchen items | a plot for a detective novel |
a stall at the summer fair | a way to celebrate a graduation | a slogan against littering |
a weekend without screens | a story for a comic strip | an icebreaker for shy people |
a gift for a host family in {country} | a craft project with wool | a quiz night with a twist |
a lesson about money for eight-year-olds | a small room that should feel bigger |
a song for a wedding | a holiday at home | a dinner for vegetarians and meat lovers |
a welcome kit for new neighbours | an essay about technology and friendship
""")

BRAINSTORM = Domain(
    "brainstorm",
    _lines("""
    Give me [5-15] ideas for {project}.~
    I need an idea for {project} and have only [2-6] days left.~
    Help me brainstorm: {project}.~
    Suggest [5-12] names for {venture}. They should be short and easy to spell.
    What would be a catchy slogan for {venture}?
    How could I promote {venture} with almost no money?~
    Here's my problem: {problem}. What could I try?~
    What can be done when {problem}? Give me [4-8] ideas.~
    I'm stuck. I'd like to come up with {project}, but everything feels boring.~
    Think of [3-6] unusual ideas for {project} and one safe one.
    Which questions should I ask myself before I start {venture}?
    List what could go wrong with {venture}, and how to prevent it.
    We want to start {venture} in {city}. What could make it special?~
    The situation is simple: {problem}. Be creative, what would help?~
    What is the strangest idea you have for {project}? And the most practical?
    Help me find a first small step, because {problem}.~
    Invent three customers who would love {venture} and say what each one needs.
    Let's do a quick brainstorm on {project}. You start, I'll react.
    What could {venture} do to attract attention in {month}?~
    Come up with a fun way to explain {venture} in one sentence.
    What would you do in my place? It's like this: {problem}.
    """),
    _lines("""
    Go for quantity, I'll sort them later.
    Nothing expensive, please.
    One line per idea.
    Please avoid the obvious ones.
    Mark your favourite.
    Be playful.
    Keep it realistic.
    Say in a few words why each could work.
    Start with the simplest.
    I'd like a mix of serious and silly.
    Ask me if anything is unclear.
    I'm open to anything.
    """),
    _chats("""
    I need ideas for {project}.
    Nice. What is your budget, and how much time do you have?
    Almost no budget, but two free weekends.
    About $[50-300/50], and it has to be ready next week.
    Money is not a problem. It should be memorable.

    Suggest a name for {venture}.
    How about something short and warm that people can spell at once?
    Yes, that's the style. Give me ten of those.
    I'd rather have something funny.
    It should hint at {city}. What can you think of?

    I have a problem: {problem}.
    That sounds annoying. What have you tried so far?
    Nothing yet. What is the easiest thing to try first?
    A few things, but I give up after a week. How can I stick with it?
    """),
)

# Simple English and definitions

SLOTS["stiff"] = _items("""
Passengers are requested to refrain from leaning against the doors. |
The aforementioned documents must be submitted prior to the commencement of the course. |
Failure to comply with these terms may result in the forfeiture of your deposit. |
The remuneration shall be determined in accordance with the qualifications of the applicant. |
The patient presented with acute abdominal discomfort of unknown origin. |
Residents are advised to exercise caution owing to adverse weather conditions. |
We endeavour to respond to all correspondence within [3-9] working days. |
The premises must be vacated no later than {date}. |
This offer is subject to availability and may be withdrawn without prior notice. |
The tenant shall be liable for any damage beyond reasonable wear and tear. |
Participants are obliged to furnish proof of identity upon arrival. |
The proposal was rejected on the grounds of insufficient funding. |
Kindly ensure that all electrical appliances are disconnected before departure. |
The committee was unable to reach a consensus with regard to the location. |
In the event of fire, evacuate the building by the nearest available exit. |
The vehicle's consumption of fuel exceeded the figures stated by the manufacturer. |
Prolonged exposure to direct sunlight may cause discolouration of the fabric. |
The substance should be administered twice daily following the consumption of food. |
Subsequent to the merger, a number of departments will be restructured. |
Applicants lacking the requisite experience will not be considered. |
The minister declined to elaborate on the circumstances of his resignation. |
Approximately [15-45/5] percent of respondents expressed dissatisfaction with the service. |
The warranty is void if the seal has been tampered with. |
Please find enclosed a remittance in settlement of your invoice. |
The bridge was deemed structurally unsound and closed until further notice. |
Excessive noise after {time} is strictly prohibited throughout the premises. |
The species inhabits temperate regions and is predominantly nocturnal. |
Your subscription will be renewed automatically unless terminated in writing. |
The author contends that prosperity does not necessarily give rise to contentment. |
Precipitation is anticipated in the eastern provinces towards the end of the week. |
The company disclaims all responsibility for items left unattended. |
Attendance at the introductory session is mandatory for all newly enrolled students. |
The suspect was apprehended in the vicinity of the railway station. |
Owing to unforeseen circumstances, the performance has been postponed indefinitely. |
Reimbursement of travel expenses requires the presentation of original receipts. |
The survey sought to ascertain the extent to which commuters utilise public transport. |
A surcharge applies to deliveries outside the metropolitan area. |
The enclosed brochure outlines the benefits to which you may be entitled. |
Cyclists are urged to dismount when traversing the pedestrian zone. |
The allocation of parking spaces is at the discretion of the management.
""")

SLOTS["idiom"] = _items("""
to let the cat out of the bag | to break the ice | a piece of cake | to cost an arm and a leg |
to be under the weather | to hit the nail on the head | once in a blue moon | to spill the beans |
to bite off more than you can chew | the last straw | to be on the fence | to cut corners |
to get cold feet | to kill two birds with one stone | a blessing in disguise | to miss the boat |
to pull someone's leg | to sit tight | to turn a blind eye | to be in the same boat |
to add fuel to the fire | a storm in a teacup | to burn the midnight oil | to jump the gun |
to go the extra mile | the tip of the iceberg | to keep an eye on something | to let off steam |
to be all ears | to beat around the bush | to call it a day | to face the music |
to have a soft spot for someone | to play it by ear | to rain on someone's parade |
out of the blue | to read between the lines | to save for a rainy day | to see eye to eye |
to take it with a grain of salt
""")

SLOTS["word"] = _items("""
ambiguous | resilience | nostalgia | reluctant | thorough | irony | empathy | procrastinate |
frugal | inevitable | diligent | subtle | prejudice | coherent | vague | candid | tedious |
benevolent | obsolete | scrutiny | tentative | versatile | hypocrisy | serendipity | mundane |
persevere | ephemeral | plausible | sustainable | pragmatic | eloquent | dilemma | meticulous |
ambivalent | bias | compromise | integrity | novelty | paradox | stoic | trivial | wary | zeal |
hindsight | lenient | notorious | grudge | whim | solitude | eccentric
""")

SLOTS["confused"] = _items("""
affect and effect | lend and borrow | say and tell | few and little | economic and economical |
its and it's | fewer and less | historic and historical | than and then | bring and take |
lay and lie | advice and advise | since and for | make and do | principal and principle |
sensible and sensitive | beside and besides | raise and rise | farther and further |
listen and hear | complement and compliment | who and whom | travel and trip | job and work |
house and home | everyday and every day | loose and lose | alone and lonely |
continual and continuous | shade and shadow | a few and few | must and have to | been and gone |
will and going to | during and while | remember and remind | moral and morale |
stationary and stationery | desert and dessert | wonder and wander
""")

LANGUAGE = Domain(
    "language",
    _lines("""
    Say this in simple English: "{stiff}"~
    What does this sentence mean? "{stiff}"~
    Translate this official text into everyday language: "{stiff}"
    I saw this on a sign and didn't understand it: "{stiff}" Can you explain it?~
    Rewrite this so that a beginner in English can read it: "{stiff}"~
    Which words in this sentence are difficult, and what do they mean? "{stiff}"
    What does the expression "{idiom}" mean?~
    Use the phrase "{idiom}" in [2-4] example sentences.
    Where does the saying "{idiom}" come from, and is it still used today?~
    My {relative} used the expression "{idiom}" and I wasn't sure what it meant.~
    What does "{word}" mean?~
    Define the word "{word}" and give an example sentence.~
    Give me [3-6] words with a similar meaning to "{word}" and explain how they differ.
    Is there an opposite of "{word}"? Give me one or two if you can.
    How would you explain the word "{word}" to {reader}?~
    Use "{word}" and "{word2}" in one sentence each.
    When do I use {confused}?~
    I always mix up {confused}. Is there an easy way to remember them?~
    Make a short exercise to practise {confused}, with answers.
    Is there a simpler word for "{word}" that fits in a formal letter?~
    Write a short dialogue between two friends that uses the phrase "{idiom}" naturally.
    Explain {confused} with two example sentences each.
    """),
    _lines("""
    I'm learning English.
    Short and simple, please.
    Use only common words.
    My level is about intermediate.
    One or two sentences are enough.
    It's for a lesson I'm preparing.
    I don't have a dictionary here.
    My teacher couldn't explain it well.
    I want to understand it properly.
    No grammar terms, please.
    """),
    _chats("""
    What does "{idiom}" mean?
    It's a common expression in everyday English. Where did you come across it?
    In a film. Please tell me the meaning and give an example.
    My {relative} used it about me. Should I be offended?

    Put this in simple English: "{stiff}"
    Sure. Should it still sound official, or can it be casual?
    It can be casual, it's for a friend.
    Still a bit official, since it will hang in a hallway.

    What does the word "wary" mean?
    If you are wary of something, you are careful because you think it might cause trouble.
    Is it stronger or weaker than "afraid"?
    Use it in a sentence about dogs.
    Thanks. What about the word "{word}"?
    """),
)

# Role-play

SLOTS["persona"] = _items("""
a friendly waiter | a strict librarian | a wise old fisherman | a space-ship computer |
a tour guide | a medieval innkeeper | a talking cat | a job interviewer |
a patient driving instructor | a retired pirate | a football coach | a museum guide |
a Victorian detective | a market seller | a sleepy dragon | a grumpy taxi driver |
a kind grandmother | a hotel receptionist | a yoga teacher |
a tree that has stood for four hundred years | a news presenter from the year 2200 | a knight |
a doctor's receptionist | a shy ghost | a customs officer | a radio host | a famous chef |
a gardener | a ship's captain | a shopkeeper who knows all the gossip | a robot butler |
an alien visiting Earth | a landlord | a primary-school teacher | a fortune teller |
a nervous magician | a train conductor | a Roman soldier | a farmer | a travel agent |
a piano teacher | a mountain rescuer
""")

SLOTS["scene"] = _items("""
I have lost my luggage | I want to order but can't read the menu | I need directions |
I missed the last bus | I want to return something without a receipt | I'm hiding from the rain |
I've brought you a strange gift | I'm lost and a little scared | I've come to ask for advice |
I want to book something for [4-9] people | I'm late again | I have a very unusual request |
I'm looking for my dog | I claim to be from the future | I want to learn your trade |
I don't speak the language very well | I have forgotten my wallet | I can't make up my mind |
I want to complain politely | I mistake you for someone else | I'm celebrating my birthday |
I'm writing an article about you | I have a bad cold | I'd like to hear a story |
I try to cheer you up | I want a discount | I've found an old map | I'm out of breath |
I ask if you believe in luck | I tell you I've just moved here | I want to sell you {ware} |
I need a place to wait for an hour | I pretend to be an inspector | I'm in a great hurry
""")

SLOTS["rehearsal"] = _items("""
a job interview at a bakery | a job interview at a software firm | asking my boss for a raise |
returning {ware} to a shop | telling my flatmate to clean up |
a phone call with a doctor's office | ordering food in a restaurant | renting a flat |
saying no to a pushy salesman | a first day at a new school | checking in at a hotel |
small talk at a party | a talk with my teenage son about screen time | buying a used car |
an oral exam in history | making up with a friend | asking someone out for coffee |
an interview for a student newspaper | a call to my bank | a speech at a wedding |
a visa interview | giving feedback to a colleague | a parent-teacher meeting |
complaining about cold soup | meeting my partner's parents | a debate about homework |
asking a neighbour to turn the music down | a call with an unhappy customer |
joining a sports club | a talk at the lost-luggage desk | selling {ware} online
""")

ROLE_PLAY = Domain(
    "roleplay",
    _lines("""
    You are {persona}. I walk in and {scene}. Start the conversation.~
    Pretend to be {persona} and tell me about your day.~
    Act as {persona}. In our scene, {scene}.~
    Play the part of {persona}. I'll ask you questions and you stay in character.~
    Let's role-play. You are {persona} and {scene}.~
    Let's practise {rehearsal}. You play the other person and wait for my answer each time.
    I'm nervous about {rehearsal}. Can we rehearse it, with feedback at the end?
    Answer as {persona} would: what makes a good life?~
    You're {persona}. Explain {concept} in your own way.~
    Write a short conversation between {persona} and {persona2}.
    Imagine you are {persona} and someone asks you about {theme}. What do you say?~
    Speak like {persona} and give me advice, because {problem}.~
    As {persona}, write a short review of {ware} you bought.
    Be {persona} for a moment. Welcome me to {place}.~
    I'd like to prepare for {rehearsal}. Ask me one question at a time and comment on my answers.
    Interview me as if you were {persona}. Begin with an easy question.~
    What would {persona} write in a diary after a very bad day?
    Introduce yourself as {persona}, in three sentences.
    You are {persona}, and you have to convince me to visit {city}.~
    Let's play a text adventure set in {place}. You are the narrator and I decide what to do.
    Pretend we're both in {place}. You are {persona}, and {scene}.~
    """),
    _lines("""
    Stay in character.
    Keep your replies short.
    Make it funny.
    Don't break character unless I say "stop".
    Use simple English, I'm still learning.
    Add small stage directions in brackets.
    Make it feel like a real conversation.
    Keep it family-friendly.
    """),
    _chats("""
    Pretend you are {persona}.
    Very well, I'm ready. What brings you here today?
    Well, {scene}. What do you say to that?
    I'd like to know what you think about {theme}.
    I'm just passing through on my way to {city}. Any advice?

    Let's practise {rehearsal}.
    Good idea. I'll play the other person. Whenever you're ready, say your first line.
    Could you go first? I don't know how to begin.
    Hello, um, do you have a minute? There's something I would like to talk about.
    Before we begin, give me two tips so I don't get nervous.

    You are the narrator of a text adventure. Begin!
    You stand in front of a wooden door. Behind it, something is humming. What do you do?
    I knock politely and wait.
    I walk around the house and look for a window.
    I put my ear to the door and listen. Who is humming?
    """),
)

# Travel

SLOTS["company"] = _items("""
my parents | two small children | a group of friends | my partner | my grandmother | a toddler |
three teenagers | colleagues | a friend in a wheelchair | my sister | an old school friend |
my in-laws | a school class
""")

SLOTS["interest"] = _items("""
good food | modern art | old churches | hiking | street markets | live music | architecture |
birdwatching | local crafts | history | photography | swimming | books and bookshops | gardens |
coffee culture | football | trains | science museums | theatre | quiet parks | cycling | wine |
boats and harbours | film locations | second-hand shopping | street food | castles | stargazing |
pottery | local festivals | jazz | canals and bridges | vegetarian cooking | viewpoints |
antiques | night walks | tea houses | board games | bakeries
""")

SLOTS["worry"] = _items("""
I don't like crowds | I can't walk very far | I'm on a tight budget | I don't speak the language |
I'm afraid of flying | I get seasick | I can't stand the heat | I get cold easily |
I'm a vegetarian | I only have a small backpack | I have to work in the mornings |
I hate early starts | I'm allergic to nuts | I'm a light sleeper
""")

SLOTS["transport"] = _items("train | bus | bike | car | camper van | motorbike")

TRAVEL = Domain(
    "travel",
    _lines("""
    Plan a [2-6]-day trip to {city}.~
    What should I see in {city} if I only have one day?~
    I'm going to {city} in {month} with {company}. What do you recommend?~
    What is the weather like in {city} in {month}, and what should I pack?
    I'm interested in {interest}. What does {city} have to offer?~
    Is {country} a good place to visit in {month}?
    I'd like to travel around {country} by {transport} for [2-4] weeks. Suggest a route.~
    How much money do I need for a week in {city}?
    What mistakes do tourists often make in {city}?
    Which is better for a long weekend, {city} or {city2}?~
    What are some polite phrases and customs I should know before visiting {country}?
    I love {interest}. Which [3-5] cities should I visit, and why?~
    Write a packing list for [4-14] days in {country} in {month}.
    I'm thinking about a holiday in {country}, but {worry}. Is it still a good idea?
    Suggest a rainy-day programme in {city} for {company}.
    How do I get around in {city} without a car?
    Which local dishes should I try in {country}?
    Describe a perfect evening in {city} for someone who likes {interest}.~
    I have [4-8] hours in {city} between two connections. Is it worth looking around?~
    What is a good day trip from {city}?~
    I have to choose between {country} and {country2} for my next holiday. I like {interest}.~
    Recommend a quieter alternative to {city} for people who enjoy {interest}.~
    Write a short travel diary entry about a first day in {city}.
    """),
    _lines("""
    I'm on a small budget.
    I love {interest2}.
    Nothing too touristy, please.
    Please leave some free time.
    I'd like to avoid the crowds.
    It would be my first time there.
    I prefer to walk.
    Please keep in mind that {worry}.
    Include one place that most tourists miss.
    Good food is important to me.
    Keep it short and practical.
    Please explain your choice.
    """),
    _chats("""
    I want to visit {city}.
    Lovely choice. When are you going, and what do you enjoy?
    In {month}, and I like {interest}.
    Next spring, with {company}. We want to take it slow.
    Not sure yet. When is the best time to go?

    Where should I go on holiday in {month}?
    Do you prefer warm beaches, mountains, or a city with lots to see?
    Mountains, but somewhere I can reach by train.
    A city with {interest}, please.
    Somewhere warm. I should add that {worry}.

    How many days do I need for {city}?
    Three days are enough for the main sights at an easy pace.
    What would you do on the second day?
    I only have one and a half. What should I skip?
    """),
)

# Classification and extraction

SLOTS["review"] = _items("""
The room was spotless and the staff went out of their way to help, but the street noise kept us
awake. | Stopped working after [2-9] days. The shop told me to write to the factory. Never again. |
Not the best pizza in town, not the worst. It was hot and it came on time. |
My daughter has worn these boots all winter and they still look new. |
The course was well planned, yet the teacher rushed through the last lessons. |
I waited [40-90/5] minutes for a cold burger, and the manager just shrugged. |
Lovely little café. The cinnamon rolls alone are worth the walk. |
The app is pretty but it crashes each time I open a second photo. |
Fast delivery, careful packing, exactly as shown in the picture. |
The plot is thin, but the songs are so good that I watched it twice. |
Good value if you don't mind a thin mattress. |
They charged me twice and it took [3-8] phone calls to get my money back. |
I was afraid of the dentist for years, and this clinic changed that. |
The vacuum cleaner is light and strong, though a bit loud for an evening in a flat. |
The guide knew everything about the castle and kept the children laughing. |
It does what it says. Nothing more to add. |
The soup tasted of salt and nothing else, and the bread was from yesterday. |
After one wash the shirt had shrunk so much that it now fits my dog. |
Very patient driving instructor. I passed at the first try! |
The museum is small, overpriced and badly lit. |
Sound quality is superb; the headband gets uncomfortable after an hour. |
I ordered blue, got green, and kept it because it looks even better. |
The ferry was late both ways and nobody told us anything. |
Honest mechanic. He said the part was fine and sent me home without a bill. |
The battery easily lasts two days and the screen is sharp. |
We liked the garden, but the kitchen closes far too early. |
This blender leaks from the bottom, and the help line plays music all day. |
A gentle, slow film. My husband fell asleep, I cried. |
The new bus line saves me twenty minutes each morning. |
The instructions were in five languages, none of which made sense. |
Tasty food, tiny portions, big bill. |
My order arrived with a handwritten thank-you note. What a nice touch. |
The gym is always full after five, and half of the machines are broken. |
I've bought this tea for ten years and it has never let me down. |
The chair looks great in photos but wobbles like a boat. |
Okay for the price, but I would not give it as a present. |
The nurse explained everything twice and held my hand. |
The game is fun for an hour, then it wants your money at every step. |
The campsite was clean, calm and close to the lake. We will be back. |
The helpline answered at once, but had no idea what I was talking about.
""")

SLOTS["message"] = _items("""
Hi, this is {name}. I'd like to book a table for [2-9] on {date} at {time}. My number is
555-01[10-99]. | {name} will fly from {city} to {city2} on {date} and stay for [3-9] nights. |
Invoice 20[10-99]: [2-9] desk lamps at $[20-60/5] each, due on {date}, please pay to {name}. |
Meeting moved to {weekday} at {time}. {name} brings the slides, {name2} books the room. |
Lost near {city} station on {date}: a black suitcase with a red ribbon. Please call {name}. |
{name} paid $[30-90/5] for shoes and $[10-25/5] for socks at the market on {weekday}. |
Dear {name}, your parcel with [2-6] books was sent from {city} and should arrive on {date}. |
The concert in {city} starts at {time}. Tickets cost $[15-60/5]; {name} has [2-5] spare ones. |
Please order [10-40/5] chairs and [3-9] tables for {weekday}. Deliver them to {name} before {time}.
| {name} moved from {city} to {city2} in {month} to work as a nurse at the children's hospital. |
Reminder: {name} has a dentist appointment on {date} at {time}, {name2} one hour later. |
Flat in {city}: [2-4] rooms, [50-110/5] square metres, $[800-2000/100] a month, free from {date}. |
{name} and {name2} met in {city} in {month} and got married two years later in {country}. |
The bakery used [20-80/10] kg of flour on {weekday}, and {name} ordered [100-300/50] kg more. |
Buy milk, [6-12] eggs, rice and soap. Pick up {name} at {time}. Call the garage by {weekday}. |
Class trip to {city} on {date}: bus leaves at {time}, costs $[12-40/2], contact {name}. |
{name} ran the race in [41-58] minutes, [2-6] minutes faster than {name2}, who came third. |
For sale: two-year-old bike, blue, 21 gears, $[90-250/10]. Ask for {name} after {time}. |
The workshop in {city} runs from {date} for [2-5] days. {name} teaches drawing, {name2} printing. |
At {time} on {weekday} a white van hit a parked car. {name} saw it and called the police. |
Our team in {country} hired [3-9] people in {month}; {name} leads the new office in {city}.
""")

SLOTS["verdict"] = _items("""
Answer with one word. | Give a short reason. | Say how sure you are. |
Don't explain, just answer. | Quote the words that led you to your answer. |
If it isn't clear, say so. | Be strict. | One line, please.
""")

SLOTS["ticket"] = _items("""
I can't log in since the update | my parcel shows as delivered but it isn't here |
how do I change my address | please cancel my order from {weekday} |
the app closes when I tap the camera | I was charged twice | do you ship to {country} |
the discount code doesn't work | I want to speak to a manager |
can I get an invoice for my order in {month} | the blue one is missing a screw |
my password link has expired | the sound stops after a minute | when will the size 40 be back |
I love the new design, thank you | how long is the guarantee | my card was declined |
I received someone else's order | the website is very slow today | can I return a gift |
the screen stays black | where is my refund | I'd like to change the delivery to {weekday} |
your driver left the box in the rain | is the shop open on {weekday} | I need a bigger size |
the manual is only in German | please delete my account | do you have this in green |
the lid doesn't close | I have a question about my bill | the new version is hard to read |
how do I pair the speaker | can I pay in two parts | the coupon you promised never came
""")

SLOTS["mixed_list"] = _items("""
apple, carrot, pear, potato, plum, leek | whale, trout, bat, eagle, shark, cow |
violin, drum, flute, harp, trumpet | oak, tulip, pine, daisy, birch, rose |
Paris, Kenya, Lima, Norway, Hanoi, Peru | hammer, spoon, saw, fork, drill, whisk |
gold, oxygen, iron, helium, copper | tennis, chess, rowing, poker, boxing |
ant, spider, bee, crab, beetle | bread, milk, soap, cheese, tissues, rice |
doctor, novel, teacher, poem, baker, essay | Mars, Sirius, Venus, Europa, Saturn |
wool, nylon, cotton, silk, polyester | run, quickly, tall, sing, softly, bright |
happy, furious, calm, gloomy, proud, scared | coal, wind, gas, solar power, oil |
bus, bicycle, ferry, lorry, canoe, plane | snow, fog, hail, breeze, rain |
mouse, keyboard, printer, screen, scanner | flour, sugar, lentils, pepper, butter
""")

EXTRACT = Domain(
    "extract",
    _lines(r"""
    Is this review positive, negative or mixed? "{review}" {verdict}
    Rate the mood of this review from 1 to 5 and explain your rating.\n\n{review}
    What does this customer like and dislike? "{review}"~
    Extract the good and bad points from this review as two lists.\n\n{review}
    Classify each review as positive, negative or neutral:\n1. {review}\n2. {review2}\n3. {review3}
    Which of these two reviews is more favourable, and why?\nA: {review}\nB: {review2}
    Find all names, dates and times in this text.~\n\n{message}
    Turn the following text into JSON with sensible keys:\n\n{message}
    Extract every number in this text and say what it refers to.~\n\n{message}
    Who, what, when, where? Answer in four short lines.\n\n{message}
    Put the facts from this note into a table: "{message}"
    Which details are missing from this message? "{message}"~
    Sum this up in one sentence and keep all names and numbers.\n\n{message}
    Sort these words into groups and name each group: {mixed_list}.~
    Which word doesn't belong, and why? {mixed_list}
    Put these in alphabetical order and label each one with its category: {mixed_list}.
    Label this support message as billing, shipping, technical or other: "{ticket}" {verdict}
    Which team should handle this request: sales, service or IT? "{ticket}" {verdict}
    How urgent are these requests? Sort them.\n- {ticket}\n- {ticket2}\n- {ticket3}
    Write one short tag for each message:\n- {ticket}\n- {ticket2}\n- {ticket3}\n- {ticket4}
    Does this sound angry, neutral or friendly? "{ticket}" {verdict}
    """),
    _lines("""
    Keep it brief.
    If something isn't clear, say so.
    Just the result, please.
    Don't add anything that isn't there.
    No long explanation, please.
    Use a list if that helps.
    It's easy to miss something, so take care.
    I need it for my records.
    """),
    _chats(r"""
    Is this review positive or negative? "{review}"
    I'd like to be sure: should I judge the overall tone or single points?
    The overall tone, in one word.
    Single points, please. Make two short lists.

    Extract the names from this: {message}
    Sure. Would you like the dates, times or amounts as well?
    Yes, everything, as JSON.
    Only the dates and times, please.

    Sort these: {mixed_list}
    By what should I sort them: by kind, by size or by alphabet?
    By kind, with a heading for each group.
    By alphabet, then mark the odd one out.
    """),
)

# Planning

SLOTS["goal"] = _items("""
learn basic Spanish | run five kilometres without a break | read more books | save for a used car |
tidy up the whole flat | write a short novel | learn to play the ukulele |
get better at public speaking | eat less sugar | prepare for a maths exam | build a small website |
sleep better | learn to swim well | cook at home more often | get ready for a hiking holiday |
find a new job | learn to draw faces | spend less time on the phone | start a vegetable garden |
develop neater handwriting | learn touch typing | revise for a history test |
pay off a small loan | meet more people in town | organise old photos |
learn the basics of Python | get back in shape after an injury | plan the garden for next year |
prepare for the driving test | learn to knit a sweater | watch less television |
learn twenty songs | get better at chess | keep a daily diary | write more letters |
learn sign language basics | clean out the garage | do thirty push-ups in a row |
drink less coffee | train the dog
""")

SLOTS["span"] = _items("""
the next six weeks | three months | the next two months | eight weeks | ten weeks |
the next hundred days | the summer | the rest of the year | one season | the next twelve weeks
""")

SLOTS["event"] = _items("""
a birthday party for a seven-year-old | a small wedding | a street party |
a surprise party for my boss | a school reunion | a charity bake sale | a garden barbecue |
a family reunion | a book launch | a neighbourhood clean-up | a game night | a farewell party |
a team workshop | a baby shower | a chess tournament | a picnic in the park | a flea market |
a housewarming party | a school play | a concert in a church | a costume party |
a fortieth birthday | a silver wedding | a sports day | a film night in the garden |
a cooking evening | a science fair | a music festival for local bands | an open day at our firm |
a company picnic | a photo exhibition | a fun run | a quiz night | a clothes swap |
a graduation dinner | a treasure hunt | a craft fair | a wine tasting | a talent show |
a plant sale
""")

SLOTS["event_wish"] = _items("""
Put it in a table. | Keep it realistic. | One step per line. | It shouldn't cost much. |
Please tell me what to do first. | I've never done this before. | We are all busy people. |
Think of children, too. | It may rain. | Some guests don't know each other. | Keep it simple.
""")

SLOTS["routine"] = _items("""
a morning routine | an evening routine | a weekly meal plan | a cleaning schedule |
a study timetable | a training plan | a weekly budget | a to-do list for the week |
a plan for the summer holidays | a daily schedule | a reading plan | a packing plan for a move |
a shopping plan for the month | a screen-time plan | a plan for quieter weekends |
a bedtime routine | a plan for a week without meat | a watering schedule for houseplants |
a warm-up routine | a revision plan
""")

SLOTS["situation"] = _items("""
works night shifts | has two school-age children | is studying and working | lives alone |
has just retired | travels a lot | works from home | shares a flat with three people |
gets tired easily | has only half an hour a day | starts work at six | is new in town |
looks after an elderly parent | has a long commute | is always in a hurry | hates planning |
has a new puppy | is on a tight budget | just had a baby
""")

PLANNING = Domain(
    "planning",
    _lines("""
    Make a plan to help me {goal} over {span}.~
    I want to {goal}. How should I plan {span}?~
    How can I {goal} if I only have [15-45/5] minutes a day?~
    Break this goal into small steps: {goal}.~
    Help me plan {event} for about [10-40/5] people. {event_wish}
    What do I need to think of when I organise {event}? {event_wish}
    Write a checklist for {event} in {month}.
    Draw up a timeline for {event}, starting [3-8] weeks ahead.
    I'm in charge of {event} and have a budget of $[100-900/100]. How should I spend it?
    Create {routine} for someone who {situation}.~
    Can you help me make {routine}? I'm someone who {situation}.~
    What does a good week look like for a person who {situation} and wants to {goal}?
    I keep failing to {goal}. What kind of plan would actually work?~
    Who should do what? We are [3-7] people and we want to organise {event}.
    What could go wrong at {event}, and what is a good backup plan?
    Suggest {routine} that I can really stick to.~
    Plan a {weekday} with time for shopping, an hour of exercise and a visit to my {relative}.
    We have [5-12] days until {event}. What should we do on each day?
    Turn my wish to {goal} into a clear goal with a date and a way to measure it.
    Write a short invitation and a schedule for {event} on {date}.
    My {relative} wants to {goal}. Suggest a gentle plan.~
    """),
    _lines("""
    Put it in a table.
    Keep it realistic.
    Leave some room for bad days.
    I lose interest quickly, so make it fun.
    One step per line.
    Start with something easy.
    It shouldn't cost much.
    Please tell me what to do first.
    I have a full-time job.
    Include a way to check progress.
    Weekends should stay free.
    """),
    _chats("""
    I want to {goal}.
    Great. How much time do you have each week, and when would you like to be done?
    About [2-6] hours a week, and I'd like to see results in {month}.
    Hardly any time, to be honest. What is the least I can do?
    Plenty of time, but I lose interest fast.

    Help me plan {event}.
    With pleasure. How many guests are coming, and what is the budget?
    [10-40/5] guests and about $[200-900/100].
    No idea yet. What should I decide first?
    It will be small, just [6-12] people.

    Can you make {routine} for me?
    Yes. What does a normal day look like for you?
    I get up at six, work until five and I'm tired after dinner.
    Every day is different. I'm someone who {situation}.
    """),
)

DOMAINS = [
    EXPLAIN,
    HOW_TO,
    CREATIVE,
    REWRITE,
    MATHS,
    CODING,
    LETTERS,
    COMPARE,
    FACTS,
    BRAINSTORM,
    LANGUAGE,
    ROLE_PLAY,
    TRAVEL,
    EXTRACT,
    PLANNING,
]
